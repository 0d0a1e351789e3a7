// Named JSON files in a folder: presets of models, of systems. Internal.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace laga::detail {

struct JsonLibrary {
  std::string_view function;    // that messages name, "load_config"
  std::string_view kind;        // "model"
  std::string_view plural;      // "Presets"
  std::string_view file;        // what a path leads to, "a config.json"
  const char* variable;         // environment's, that names another folder
  std::string_view variable_is; // what it should point at, "configs/models"
  const char* folder;

  /// Names of the files, sorted. Throws InvalidArgument where the folder cannot
  /// be read.
  std::vector<std::string> names() const;

  /// A name's file or, for what has a '/' or ends in .json, that path. Throws
  /// InvalidArgument listing the names for an unknown one.
  std::filesystem::path path_of(std::string_view name_or_path) const;

  /// Throws InvalidArgument naming the path.
  std::string read(const std::filesystem::path& path) const;

 private:
  std::filesystem::path where() const;
};

} // namespace laga::detail
