#include "cli/json_output.h"

#include "laga/core/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace laga::cli {

JsonOutput::JsonOutput(std::string path) : path_(std::move(path)) {
  if (path_.empty() || path_ == "-") return;
  unfinished_ = fmt::format("{}.{}.unfinished", path_, getpid());
  file_ = std::fopen(unfinished_.c_str(), "w");
  if (file_ == nullptr) {
    throw InvalidArgument(fmt::format(
        "[--json] cannot write {}: {}", path_, std::strerror(errno)));
  }
  guard_.emplace(unfinished_);
}

JsonOutput::~JsonOutput() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(unfinished_.c_str());
}

void JsonOutput::write(const nlohmann::ordered_json& document) {
  if (path_.empty()) return;
  const std::string text = document.dump(2) + "\n";
  if (path_ == "-") {
    fmt::print("{}", text);
    return;
  }
  const bool written = std::fputs(text.c_str(), file_) >= 0;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!written || !closed ||
      std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(unfinished_.c_str());
    throw std::runtime_error(
        fmt::format("[--json] writing {} failed: {}", path_, reason));
  }
  guard_.reset();
}

} // namespace laga::cli
