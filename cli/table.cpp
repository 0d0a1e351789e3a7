#include "cli/table.h"

#include "laga/core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace laga::cli {

namespace {

constexpr const char* kGap = "  ";

} // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  LAGA_CHECK_EQ(cells.size(), columns_.size(), "cells in a row");
  rows_.push_back(std::move(cells));
}

// The widest cell of each column; a group's heading that is wider than its
// columns widens the last of them.
std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = columns_[i].name.size();
    for (const auto& row : rows_)
      width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  for (size_t i = 0; i < columns_.size();) {
    size_t end = i, total = 0;
    while (end < columns_.size() && columns_[end].group == columns_[i].group) {
      total += widths[end++] + 2;
    }
    const size_t heading = columns_[i].group.size() + 2;
    if (heading > total) widths[end - 1] += heading - total;
    i = end;
  }
  return widths;
}

void Table::print(std::FILE* stream) const {
  const std::vector<size_t> width = widths();
  std::string groups, names;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const bool first = i == 0 || columns_[i].group != columns_[i - 1].group;
    size_t total = 0;
    for (size_t j = i;
         j < columns_.size() && columns_[j].group == columns_[i].group;
         ++j) {
      total += width[j] + (j > i ? 2 : 0);
    }
    if (first) {
      groups += fmt::format("{:<{}}{}", columns_[i].group, total, kGap);
    }
    names += columns_[i].text
                 ? fmt::format("{:<{}}{}", columns_[i].name, width[i], kGap)
                 : fmt::format("{:>{}}{}", columns_[i].name, width[i], kGap);
  }
  const auto line = [&](std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print(stream, "{}\n", text);
  };
  line(groups);
  line(names);
  for (const auto& row : rows_) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) {
      text += columns_[i].text
                  ? fmt::format("{:<{}}{}", row[i], width[i], kGap)
                  : fmt::format("{:>{}}{}", row[i], width[i], kGap);
    }
    line(text);
  }
}

} // namespace laga::cli
