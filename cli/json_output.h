// --json FILE|-: written under another name and renamed, so that a file is
// either whole or not there.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace laga::cli {

class JsonOutput {
 public:
  /// "": none; "-": stdout. Opens the file, so that a path which cannot be
  /// written fails before any work (InvalidArgument).
  explicit JsonOutput(std::string path);
  ~JsonOutput();
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;

  /// Where tables go: stderr while JSON has stdout.
  std::FILE* table_stream() const {
    return path_ == "-" ? stderr : stdout;
  }

  /// Throws std::runtime_error where the disk fails.
  void write(const nlohmann::ordered_json& document);

 private:
  std::string path_;
  std::string unfinished_;
  std::optional<RemoveIfInterrupted> guard_;
  std::FILE* file_ = nullptr;
};

} // namespace laga::cli
