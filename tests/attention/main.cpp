#include "laga/attention/memory.h"

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  laga::install_counting_allocator(); // before any tensor exists
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
