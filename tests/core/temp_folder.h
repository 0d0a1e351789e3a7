// A folder that is gone when the test is.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace laga {

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> made{0};
    path_ = std::filesystem::path(testing::TempDir()) /
            ("laga-" + std::to_string(getpid()) + "-" + std::to_string(++made));
    std::filesystem::create_directories(path_);
  }

  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(const std::string& name) const {
    return (path_ / name).string();
  }

  std::string path() const {
    return path_.string();
  }

  /// Names of what is in it.
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace laga
