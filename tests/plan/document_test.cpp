// Every number in the tables of docs/accounting.md, computed again.
#include "laga/core/check.h"
#include "laga/plan/bytes.h"
#include "laga/plan/memory.h"
#include "laga/plan/work.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace laga {
namespace {

struct Row {
  std::string quantity, model, form, value;
  int64_t seq = 0;
  int ranks = 0;
};

// "| a | b |" -> {"a", "b"}
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' ');
    const size_t end = cell.find_last_not_of(' ');
    if (begin != std::string::npos)
      cells.push_back(cell.substr(begin, end - begin + 1));
  }
  return cells;
}

std::vector<Row> rows_of_the_document() {
  std::ifstream in(LAGA_ACCOUNTING_DOCUMENT);
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("| ", 0) != 0) continue;
    const auto cell = cells(line);
    if (cell.size() != 6 || cell[0] == "quantity") continue;
    rows.push_back(
        {cell[0],
         cell[1],
         cell[2],
         cell[5],
         std::stoll(cell[3]),
         std::stoi(cell[4])});
  }
  return rows;
}

int64_t sum(
    const std::vector<Transfer>& transfers,
    Phase phase,
    int64_t Transfer::*what) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.phase == phase) bytes += transfer.*what;
  }
  return bytes;
}

// As the paper counts: 4 bytes a number in an all-to-all, a gather as one shard
// of 2. In bf16 ours counts 2 and 2.
double paper_mb(const std::vector<Transfer>& transfers) {
  double bytes = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.phase != Phase::kForward) continue;
    bytes += static_cast<double>(transfer.payload_bytes) *
             (transfer.op == "all_to_all" ? 2 : 1);
  }
  return bytes * 1e-6;
}

std::string one_decimal(double x) {
  std::ostringstream text;
  text.precision(1);
  text << std::fixed << x;
  return text.str();
}

std::string computed(const Row& row, const MlaConfig& config) {
  const Form& form = find_form(row.form);
  const RunShape shape{row.seq, 1, row.ranks, Dtype::kBf16};
  const auto transfers = predict_transfers(config, form, shape);
  if (row.quantity == "sent forward, B") {
    return std::to_string(
        sum(transfers, Phase::kForward, &Transfer::bytes_sent));
  }
  if (row.quantity == "sent backward, B") {
    return std::to_string(
        sum(transfers, Phase::kBackward, &Transfer::bytes_sent));
  }
  if (row.quantity == "payload forward, B") {
    const int64_t latent = transfers.front().payload_bytes;
    const int64_t all =
        sum(transfers, Phase::kForward, &Transfer::payload_bytes);
    return std::to_string(all - latent) + " + " + std::to_string(latent);
  }
  if (row.quantity == "paper's table 1, MB")
    return one_decimal(paper_mb(transfers));
  if (row.quantity.rfind("saved by ", 0) == 0) {
    const std::string inner =
        row.quantity.substr(9, row.quantity.find(',') - 9);
    return std::to_string(
        predict_memory(config, form, inner, shape).saved_bytes());
  }
  if (row.quantity == "GFLOP forward") {
    return one_decimal(
        flops_in(predict_work(config, form, "fused", shape), Phase::kForward) *
        1e-9);
  }
  return "unknown quantity " + row.quantity;
}

TEST(Document, NumbersOfTheTablesAreComputedAgain) {
  const std::vector<Row> rows = rows_of_the_document();
  EXPECT_GE(rows.size(), 29U);
  for (const Row& row : rows) {
    EXPECT_EQ(computed(row, load_config(row.model)), row.value)
        << row.quantity << ' ' << row.form << " S " << row.seq << " P "
        << row.ranks;
  }
}

// No number is there by itself: another width of the values changes each.
TEST(Document, NumbersFollowTheDimensions) {
  for (const Row& row : rows_of_the_document()) {
    MlaConfig config = load_config(row.model);
    config.v_head_dim += 8;
    config.kv_lora_rank += 8;
    EXPECT_NE(computed(row, config), row.value) << row.quantity << row.form;
  }
}

} // namespace
} // namespace laga
