// Aligned columns: text to the left, numbers to the right.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace laga::cli {

class Table {
 public:
  /// Headings of two lines: a group (repeated over its columns, printed once)
  /// and a name.
  struct Column {
    std::string group;
    std::string name;
    bool text = false;
  };

  explicit Table(std::vector<Column> columns);

  /// As many cells as columns.
  void add_row(std::vector<std::string> cells);

  void print(std::FILE* stream) const;

 private:
  std::vector<size_t> widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

} // namespace laga::cli
