// Where configs come from: the preset folder, or a path.
#include "laga/core/config.h"
#include "laga/core/json_library.h"

#include <string>
#include <system_error>

namespace laga {
namespace {

namespace fs = std::filesystem;

constexpr detail::JsonLibrary kModels{
    "load_config",
    "model",
    "Presets",
    "a config.json",
    "LAGA_PRESETS",
    "configs/models",
    LAGA_PRESET_DIR "/models"};

} // namespace

std::vector<std::string> preset_names() {
  return kModels.names();
}

MlaConfig load_config(std::string_view name_or_path) {
  std::error_code ignored;
  fs::path path = kModels.path_of(name_or_path);
  if (fs::is_directory(path, ignored)) path /= "config.json";
  MlaConfig config = parse_config(kModels.read(path), path.string());
  // Messages so far named the path; from here on the model's folder says more
  // than "config".
  const fs::path folder =
      fs::absolute(path).lexically_normal().parent_path().filename();
  config.name = path.filename() == "config.json" && !folder.empty()
                    ? folder.string()
                    : path.stem().string();
  return config;
}

} // namespace laga
