#include "attention_flags.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "command.hpp"
#include "files/source.hpp"

namespace tilewise::cli {
namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UsageError(fmt::format("--seed: {} is not a whole number from 0 to {}", files::in_quotes(text), UINT64_MAX));
  }
  return seed;
}

Band band_of(const AttentionFlags& flags) {
  Band band{.causal = flags.causal, .left = flags.left, .right = flags.right, .delta = flags.delta};
  if (flags.align == "top_left") {
    band.alignment = Alignment::top_left;
  } else if (flags.align == "bottom_right") {
    band.alignment = Alignment::bottom_right;
  } else if (!flags.align.empty()) {
    throw UsageError(
        fmt::format("--align: {} is not a corner; expected top_left or bottom_right", files::in_quotes(flags.align)));
  }
  if (band.causal && band.right) throw UsageError("--causal means --right 0: give one of them");
  if (band.alignment && band.delta) throw UsageError("--align and --delta both place the band: give one of them");
  return band;
}

}  // namespace

void add_attention_flags(CLI::App& app, AttentionFlags& flags) {
  const char* mask = "What is computed";
  add_number(app, "--scale", flags.scale, "factor of q.k (default 1/sqrt(D); 0 and negative are valid)")->group(mask);
  add_number(app, "--softcap", flags.softcap, "scores s become X*tanh(s/X), X > 0")->group(mask);
  app.add_flag("--causal", flags.causal, "no key after the query: the same as --right 0")->group(mask);
  add_integer(app, "--left", flags.left, "window: at most N keys before the query's own place", lowest, highest)
      ->group(mask);
  add_integer(app, "--right", flags.right, "window: at most N keys after the query's own place", lowest, highest)
      ->group(mask);
  app.add_option("--align", flags.align,
                 "where a query's own place is when Sq != Sk:\n"
                 "top_left (query 0 at key 0) or bottom_right (last at last)")
      ->type_name("CORNER")
      ->group(mask);
  add_integer(app, "--delta", flags.delta, "instead of --align: query i is at key i + N", lowest, highest)->group(mask);
  add_number(app, "--dropout", flags.dropout, "drop weights with probability X in [0, 1]; needs --seed")->group(mask);
  app.add_option("--seed", flags.seed, "seed of the dropout pattern, 64 bits")->type_name("N")->group(mask);
  add_integer(app, "--offset", flags.offset, "offset of the dropout pattern, 32 bits (default 0)", 0, UINT32_MAX)
      ->group(mask);
  app.add_flag("--backward", flags.backward, "compute gradients (not built yet: an error)")->group(mask);

  const char* how = "How it is computed";
  app.add_option("--device", flags.device, "cpu (default), cuda or metal")->type_name("D")->group(how);
  add_integer(app, "--threads", flags.threads, "at most N threads (default: TILEWISE_NUM_THREADS, else all)", 1, 65536)
      ->group(how);
  app.add_option("--kernel", flags.kernel, "this kernel, or one whose name starts so (see: tilewise info)")
      ->type_name("NAME")
      ->group(how);
}

AttentionOptions attention_options(const AttentionFlags& flags) {
  AttentionOptions options;
  if (flags.scale && !std::isfinite(*flags.scale)) {
    throw UsageError(fmt::format("--scale: {} is not finite", *flags.scale));
  }
  if (flags.softcap && !(std::isfinite(*flags.softcap) && *flags.softcap > 0)) {
    throw UsageError(fmt::format("--softcap: {} is not a finite number above 0", *flags.softcap));
  }
  options.scale = flags.scale;
  options.softcap = flags.softcap;
  options.band = band_of(flags);
  if (flags.dropout) {
    if (!(*flags.dropout >= 0 && *flags.dropout <= 1)) {
      throw UsageError(fmt::format("--dropout: {} is not in [0, 1]", *flags.dropout));
    }
    if (flags.seed.empty()) throw UsageError("--dropout needs --seed N: the pattern is a function of it");
    options.dropout = Dropout{.p = *flags.dropout,
                              .seed = parse_seed(flags.seed),
                              .offset = static_cast<std::uint32_t>(flags.offset.value_or(0))};
  } else if (!flags.seed.empty() || flags.offset) {
    throw UsageError("--seed and --offset belong to --dropout");
  }
  if (flags.backward) throw Unsupported("--backward: the backward pass is not built yet");
  return options;
}

ExecutionOptions execution_options(const AttentionFlags& flags) {
  ExecutionOptions execution;
  parse_device(flags.device);
  execution.max_threads = static_cast<int>(flags.threads.value_or(0));
  if (!flags.kernel.empty()) matching_kernels(flags.kernel);
  execution.kernel = flags.kernel;
  return execution;
}

void require_alignment(const AttentionOptions& options, const ConstTensorView& q, const ConstTensorView& k) {
  const Band& band = options.band;
  if (band.unbounded() || band.alignment || band.delta) return;
  const bool packed_or_padded = options.q_lengths.present() || options.kv_lengths.present() || options.cu_q.present() ||
                                options.cu_k.present() || options.block_table.present();
  const std::int64_t q_len = q.rank == max_rank ? q.shape[2] : 0;
  const std::int64_t k_len = k.rank == max_rank ? k.shape[2] : 0;
  if (q_len == k_len && !packed_or_padded) return;
  throw UsageError(fmt::format(
      "the band (--causal, --left, --right) needs its corner where {}: --align top_left puts query 0 at key 0, "
      "--align bottom_right the last query at the last key",
      packed_or_padded ? "lengths, offsets or pages are given" : fmt::format("Sq = {} and Sk = {}", q_len, k_len)));
}

}  // namespace tilewise::cli
