#include "laga/attention/memory.h"

#include "cli/command.h"
#include "cli/interrupt.h"

int main(int argc, char** argv) {
  laga::install_counting_allocator(); // before any tensor exists
  laga::cli::handle_interrupts();

  CLI::App program{
      "Sequence-parallel training attention for Multi-head Latent Attention.\n"
      "Sizes take k = 1024 and m = 1024 k."};
  program.name("laga");
  program.require_subcommand(1);
  program.footer(
      "Exit codes: 0 fine, 1 a check failed, 2 usage or bad input, 3 a peer or "
      "the system\nfailed, 130 interrupted.");
  std::function<int()> chosen;
  laga::cli::add_compare(program, chosen);
  laga::cli::add_verify(program, chosen);
  laga::cli::add_plan(program, chosen);
  laga::cli::add_bench(program, chosen);
  laga::cli::add_info(program, chosen);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = program.exit(error);
    return code == 0 ? laga::cli::kOk : laga::cli::kBadInput;
  }
  return laga::cli::guarded(chosen);
}
