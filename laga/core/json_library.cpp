#include "laga/core/json_library.h"

#include "laga/core/check.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>

namespace laga::detail {

namespace fs = std::filesystem;

std::vector<std::string> JsonLibrary::names() const {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(where(), error), end;
       !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == ".json") names.push_back(path.stem().string());
  }
  if (error) {
    throw InvalidArgument(concat(
        "[",
        function,
        "] the preset folder ",
        where().string(),
        " cannot be read (",
        error.message(),
        "). Point ",
        variable,
        " at ",
        variable_is));
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path JsonLibrary::path_of(std::string_view name_or_path) const {
  if (name_or_path.find('/') != std::string_view::npos ||
      fs::path(name_or_path).extension() == ".json") {
    return name_or_path;
  }
  std::string known;
  for (const std::string& name : names()) {
    if (name == name_or_path) return where() / (name + ".json");
    known += (known.empty() ? "" : ", ") + name;
  }
  throw InvalidArgument(concat(
      "[",
      function,
      "] unknown ",
      kind,
      " '",
      name_or_path,
      "'. ",
      plural,
      ": ",
      known,
      ". Or give the path of ",
      file));
}

std::string JsonLibrary::read(const fs::path& path) const {
  std::error_code ignored;
  std::ifstream in(path, std::ios::binary);
  if (!in || !fs::is_regular_file(path, ignored)) {
    throw InvalidArgument(concat(
        "[",
        function,
        "] ",
        path.string(),
        " is not a file that can be read. Give the path of ",
        file,
        " or the name of a preset"));
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path JsonLibrary::where() const {
  const char* other = std::getenv(variable);
  return other != nullptr && *other != '\0' ? other : folder;
}

} // namespace laga::detail
