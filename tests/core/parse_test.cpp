#include "laga/core/parse.h"

#include "laga/core/check.h"
#include "laga/core/dtype.h"
#include "laga/core/form.h"

#include <gtest/gtest.h>

namespace laga {
namespace {

TEST(ParseCount, TakesUnitsOf1024) {
  EXPECT_EQ(parse_count("7", "--seq"), 7);
  EXPECT_EQ(parse_count("4k", "--seq"), 4096);
  EXPECT_EQ(parse_count("2M", "--seq"), 2097152);
  EXPECT_EQ(
      parse_counts("1,2k,3", "--ranks"), (std::vector<int64_t>{1, 2048, 3}));
}

TEST(ParseCount, RefusesTheRestNamingTheOption) {
  for (const char* text :
       {"",
        "0",
        "-4",
        "1.5",
        "1e3",
        "k",
        "4kk",
        " 4",
        "4 ",
        "2g",
        "1099511627777",
        "1048577m",
        "99999999999999999999"}) {
    try {
      parse_count(text, "--seq");
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("--seq"), std::string::npos);
    }
  }
  EXPECT_EQ(parse_count("1048576m", "--seq"), int64_t{1} << 40);
  EXPECT_THROW(parse_counts("1,,2", "--ranks"), InvalidArgument);
  EXPECT_THROW(parse_counts("1,", "--ranks"), InvalidArgument);
}

TEST(ParseDtype, IsTheInverseOfItsName) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp32, Dtype::kFp64}) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  }
  EXPECT_THROW(parse_dtype("fp16"), InvalidArgument);
  EXPECT_THROW(parse_dtype(""), InvalidArgument);
}

TEST(FindForm, FindsEveryRowAndNoOther) {
  for (const Form& form : kForms) {
    EXPECT_EQ(&find_form(form.name), &form);
  }
  EXPECT_THROW(find_form("Laga"), InvalidArgument);
}

} // namespace
} // namespace laga
