// Where configs come from: the preset folder, or a path.
#include "laga/core/check.h"
#include "laga/core/config.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace laga {
namespace {

namespace fs = std::filesystem;

fs::path preset_dir() {
  const char* dir = std::getenv("LAGA_PRESETS");
  return dir != nullptr && *dir != '\0' ? dir : LAGA_PRESET_DIR;
}

std::string read_file(const fs::path& path) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || !fs::is_regular_file(path, ignored)) {
    throw InvalidArgument(detail::concat(
        "[load_config] ",
        path.string(),
        " is not a file that can be read. Give the path of a config.json or ",
        "the name of a preset"));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

MlaConfig load_file(fs::path path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) path /= "config.json";
  MlaConfig config = parse_config(read_file(path), path.string());
  // Messages so far named the path; from here on the model's folder says more
  // than "config".
  const fs::path folder =
      fs::absolute(path).lexically_normal().parent_path().filename();
  config.name = path.filename() == "config.json" && !folder.empty()
                    ? folder.string()
                    : path.stem().string();
  return config;
}

} // namespace

std::vector<std::string> preset_names() {
  const fs::path dir = preset_dir();
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator file(dir, error), end; !error && file != end;
       file.increment(error)) {
    const fs::path& path = file->path();
    if (path.extension() == ".json") names.push_back(path.stem().string());
  }
  if (error) {
    throw InvalidArgument(detail::concat(
        "[preset_names] the preset folder ",
        dir.string(),
        " cannot be read (",
        error.message(),
        "). Point LAGA_PRESETS at configs/models"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

MlaConfig load_config(std::string_view name_or_path) {
  if (name_or_path.find('/') != std::string_view::npos ||
      fs::path(name_or_path).extension() == ".json") {
    return load_file(name_or_path);
  }
  std::string known;
  for (const std::string& name : preset_names()) {
    if (name == name_or_path) return load_file(preset_dir() / (name + ".json"));
    known += (known.empty() ? "" : ", ") + name;
  }
  throw InvalidArgument(detail::concat(
      "[load_config] unknown model '",
      name_or_path,
      "'. Presets: ",
      known,
      ". Or give the path of a config.json"));
}

} // namespace laga
