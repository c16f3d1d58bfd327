// The tilewise command: reads the command line, runs one subcommand, turns errors into messages and exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <vector>

#include "command.hpp"
#include "tilewise/attention.hpp"

namespace {

using namespace tilewise::cli;

constexpr const char* footer = R"(Start with:
  tilewise info                                 what this machine and this build can do
  tilewise run --input in.safetensors --output out.safetensors --causal
  tilewise explain --q-shape 1,8,1024,64 --kv-shape 1,2,1024,64 --causal
  tilewise check --quick                        every kernel against the float64 oracle
  tilewise bench --grid founding

Every subcommand has a --help with examples. Environment: TILEWISE_KERNEL forces a kernel (a name or its
beginning), TILEWISE_NUM_THREADS limits the threads. Exit codes: 0 done, 1 the data or a check is wrong,
2 the command line is wrong.)";

int report(int code, const std::string& message) {
  fmt::print(stderr, "tilewise: {}\n", message);
  return code;
}

int run_subcommand(int argc, char** argv) {
  CLI::App app("Exact attention in linear memory.", "tilewise");
  app.footer(footer);
  app.set_version_flag("--version", std::string("tilewise ") + tilewise::version());
  app.require_subcommand(1);
  const std::vector<Subcommand> subcommands{add_run(app), add_explain(app), add_info(app), add_check(app),
                                            add_bench(app)};
  const auto chosen = [&] {
    return std::find_if(subcommands.begin(), subcommands.end(),
                        [](const Subcommand& subcommand) { return subcommand.app->parsed(); });
  };
  try {
    app.parse(argc, argv);
    return chosen()->run();
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const bool known = chosen() != subcommands.end();
    return report(usage_error, fmt::format("{}\nTry: tilewise {}--help", error.what(),
                                           known ? chosen()->app->get_name() + " " : std::string()));
  } catch (const UsageError& error) {
    return report(usage_error, fmt::format("{}\nTry: tilewise {} --help", error.what(), chosen()->app->get_name()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  // A write beyond the file-size limit is to fail with an error, so that nothing half-written stays behind.
  std::signal(SIGXFSZ, SIG_IGN);
  int code = ok;
  try {
    code = run_subcommand(argc, argv);
  } catch (const std::bad_alloc&) {
    return report(data_error, "not enough memory");
  } catch (const std::exception& error) {
    return report(data_error, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return report(data_error, "standard output: cannot be written");
  return code;
}
