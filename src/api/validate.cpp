#include "api/validate.hpp"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "api/describe.hpp"
#include "api/lengths.hpp"
#include "api/overlap.hpp"
#include "cpu/isa.hpp"
#include "kernel/sequence.hpp"

namespace tilewise::api {
namespace {

using std::int64_t;

bool is_real(DType dtype) {
  return dtype == DType::float64 || dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16;
}

std::size_t at(int dimension) { return static_cast<std::size_t>(dimension); }

// Elements, after checking that no size is negative and that neither their number nor their reach in bytes overflows.
int64_t checked_elements(const char* name, const ConstTensorView& view) {
  int64_t elements = 1;
  int64_t reach = 0;
  bool overflow = false;
  for (int d = 0; d < view.rank; ++d) {
    if (view.shape[at(d)] < 0) refuse(name, "shape " + shape_of(view) + " has a negative size");
  }
  for (int d = 0; d < view.rank; ++d) {
    const int64_t size = view.shape[at(d)];
    const int64_t stride = view.strides[at(d)];
    if (size == 0) return 0;
    int64_t dimension_reach = 0;
    overflow = overflow || __builtin_mul_overflow(elements, size, &elements) ||
               stride == std::numeric_limits<int64_t>::lowest() ||
               __builtin_mul_overflow(size - 1, stride < 0 ? -stride : stride, &dimension_reach) ||
               __builtin_add_overflow(reach, dimension_reach, &reach);
  }
  overflow = overflow || reach > std::numeric_limits<int64_t>::max() / 64;  // in bytes, with room to add two of them
  if (overflow) refuse(name, "shape " + shape_of(view) + " with its strides reaches beyond 64-bit offsets");
  return elements;
}

int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  int64_t alignment = 16;
  while (alignment > 1 && address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

// Reads one call's arguments into a Call, in the order in which errors are reported.
class Reader {
 public:
  Reader(const ForwardTensors& tensors, const AttentionOptions& options, Addresses addresses)
      : t_(tensors), o_(options), addresses_(addresses) {}

  Call call() {
    read_tensors();
    read_layout();
    read_shapes();
    read_numbers();
    read_band();
    read_masks();
    read_vectors();
    read_dropout();
    check_lengths();
    check_outputs();
    return call_;
  }

 private:
  Problem& p() { return call_.problem; }

  // Checks what every tensor must fulfil and returns its spec.
  TensorSpec spec_of(const char* name, const ConstTensorView& view) {
    const int64_t elements = checked_elements(name, view);
    if (!(view.device == t_.q.device)) refuse(name, "is on another device than q");
    if (view.data == nullptr && elements > 0 && addresses_ == Addresses::required) refuse(name, "data is null");
    const std::size_t size = size_of(view.dtype);
    if (reinterpret_cast<std::uintptr_t>(view.data) % size != 0) {
      refuse(name, "data is not aligned to its elements of " + std::to_string(size) + " bytes");
    }
    // Without elements strides may be anything, and kernels step over the rows all the same: that must not overflow.
    const std::array<int64_t, max_rank> strides = elements == 0 ? std::array<int64_t, max_rank>{} : view.strides;
    return {view.dtype, view.rank, view.shape, strides, alignment_of(view.data)};
  }

  TensorSpec tensor_of_rank(const char* name, const ConstTensorView& view, int rank) {
    if (!view.present()) refuse(name, "is missing");
    if (view.rank > max_rank) refuse(name, "rank " + std::to_string(view.rank) + ", expected " + std::to_string(rank));
    if (view.rank != rank) {
      refuse(name, "shape " + shape_of(view) + " has rank " + std::to_string(view.rank) + ", expected " +
                       std::to_string(rank));
    }
    return spec_of(name, view);
  }

  void expect_dtype(const char* name, DType dtype, DType expected, const char* why) {
    if (dtype == expected) return;
    refuse(name, std::string("dtype ") + name_of(dtype) + ", expected " + name_of(expected) + why);
  }

  void expect_shape(const char* name, const ConstTensorView& view, std::initializer_list<int64_t> expected,
                    const char* meaning) {
    if (std::equal(expected.begin(), expected.end(), view.shape.begin())) return;
    refuse(name, "shape " + shape_of(view) + ", expected " +
                     list_of(expected.begin(), static_cast<int>(expected.size())) + " (" + meaning + ")");
  }

  void read_tensors() {
    p().q = tensor_of_rank("q", t_.q, 4);
    p().k = tensor_of_rank("k", t_.k, 4);
    p().v = tensor_of_rank("v", t_.v, 4);
    p().o = tensor_of_rank("o", t_.o, 4);
    p().dtype = t_.q.dtype;
    if (!is_real(t_.q.dtype)) {
      refuse("q", std::string("dtype ") + name_of(t_.q.dtype) + ", expected float64, float32, float16 or bfloat16");
    }
    expect_dtype("k", t_.k.dtype, t_.q.dtype, " like q");
    expect_dtype("v", t_.v.dtype, t_.q.dtype, " like q");
    expect_dtype("o", t_.o.dtype, t_.q.dtype, " like q");
    if (t_.lse.present()) {
      p().lse = tensor_of_rank("lse", t_.lse, 3);
      expect_dtype("lse", t_.lse.dtype, t_.q.dtype == DType::float64 ? DType::float64 : DType::float32,
                   " (float64 for float64 inputs, else float32)");
    }
    call_.buffers.q = address_of(t_.q.data);
    call_.buffers.k = address_of(t_.k.data);
    call_.buffers.v = address_of(t_.v.data);
    call_.buffers.o = address_of(t_.o.data);
    call_.buffers.lse = t_.lse.data;
    p().machine = {t_.q.device.kind, t_.q.device.kind == DeviceKind::cpu ? cpu::cpu_features() : 0};
  }

  // Tensors without elements may be null; kernels step over their rows, and no arithmetic is allowed on null.
  template <class Data>
  Data* address_of(Data* data) const {
    static std::byte nothing[16];
    return data == nullptr && addresses_ == Addresses::required ? nothing : data;
  }

  // Packed, paged or plain: who counts the batch, and how long K is.
  void read_layout() {
    if (o_.block_table.present()) {
      p().block_table = tensor_of_rank("block_table", o_.block_table, 2);
      call_.buffers.block_table = o_.block_table.data;
      expect_dtype("block_table", o_.block_table.dtype, DType::int32, "");
      if (o_.cu_k.present()) refuse("cu_k", "is given together with block_table; paged keys are counted by kv_lengths");
      if (!o_.kv_lengths.present()) refuse("kv_lengths", "is missing; block_table needs it");
    }
    if (o_.cu_k.present() && !o_.cu_q.present()) refuse("cu_q", "is missing; cu_k needs it");
    if (o_.cu_q.present() && !o_.cu_k.present() && !o_.block_table.present()) {
      refuse("cu_k", "is missing; cu_q needs it, or a block_table");
    }
    p().batch = t_.q.shape[0];
    if (o_.cu_q.present()) {
      p().cu_q = offsets("cu_q", o_.cu_q, call_.buffers.cu_q);
      p().batch = o_.cu_q.shape[0] - 1;
      if (t_.q.shape[0] != 1)
        refuse("q", "shape " + shape_of(t_.q) + ", expected batch 1 with cu_q (packed sequences)");
    }
    if (o_.cu_k.present()) {
      p().cu_k = offsets("cu_k", o_.cu_k, call_.buffers.cu_k);
      if (o_.cu_k.shape[0] != o_.cu_q.shape[0]) {
        refuse("cu_k", "has " + std::to_string(o_.cu_k.shape[0]) + " entries, expected " +
                           std::to_string(o_.cu_q.shape[0]) + " like cu_q");
      }
      if (t_.k.shape[0] != 1)
        refuse("k", "shape " + shape_of(t_.k) + ", expected batch 1 with cu_k (packed sequences)");
    }
    if (o_.block_table.present() && o_.block_table.shape[0] != p().batch) {
      expect_shape("block_table", o_.block_table, {p().batch, o_.block_table.shape[1]},
                   "[number of sequences, max_pages]");
    }
  }

  TensorSpec offsets(const char* name, const ConstTensorView& view, const void*& data) {
    const TensorSpec spec = integer_vector(name, view);
    if (view.shape[0] < 1) refuse(name, "is empty, expected n + 1 offsets for n sequences");
    data = view.data;
    return spec;
  }

  TensorSpec integer_vector(const char* name, const ConstTensorView& view) {
    const TensorSpec spec = tensor_of_rank(name, view, 1);
    if (view.dtype != DType::int32 && view.dtype != DType::int64) {
      refuse(name, std::string("dtype ") + name_of(view.dtype) + ", expected int32 or int64");
    }
    return spec;
  }

  void read_shapes() {
    const auto& q = t_.q.shape;
    const auto& k = t_.k.shape;
    const auto& v = t_.v.shape;
    p().q_heads = q[1];
    p().q_len = q[2];
    p().head_dim = q[3];
    p().kv_heads = k[1];
    p().v_dim = v[3];
    if (k[3] != q[3]) {
      refuse("k", "shape " + shape_of(t_.k) + " has head_dim " + std::to_string(k[3]) + ", expected " +
                      std::to_string(q[3]) + " like q");
    }
    if (!p().paged() && k[0] != q[0]) {
      refuse("k", "shape " + shape_of(t_.k) + " has batch " + std::to_string(k[0]) + ", expected " +
                      std::to_string(q[0]) + " like q");
    }
    expect_shape("v", t_.v, {k[0], k[1], k[2], v[3]}, "batch, kv_heads and length of k, any v_dim");
    if (p().q_heads > 0 && (p().kv_heads == 0 || p().q_heads % p().kv_heads != 0)) {
      refuse("k", std::to_string(p().kv_heads) + " kv_heads do not divide the " + std::to_string(p().q_heads) +
                      " heads of q");
    }
    p().kv_len = k[2];
    if (p().paged()) {
      if (k[2] < 1) refuse("k", "shape " + shape_of(t_.k) + " has pages of 0 rows");
      if (__builtin_mul_overflow(o_.block_table.shape[1], k[2], &p().kv_len)) {
        refuse("block_table", "shape " + shape_of(o_.block_table) + " counts more keys than 64 bits hold");
      }
    }
    expect_shape("o", t_.o, {q[0], q[1], q[2], v[3]}, "[B, Hq, Sq, Dv]");
    if (t_.lse.present()) expect_shape("lse", t_.lse, {q[0], q[1], q[2]}, "[B, Hq, Sq]");
  }

  void read_numbers() {
    const double limit = p().dtype == DType::float64 ? DBL_MAX : static_cast<double>(FLT_MAX);
    p().scale = o_.scale.value_or(p().head_dim == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p().head_dim)));
    if (!(std::abs(p().scale) <= limit)) {
      refuse("scale", std::to_string(p().scale) + ", expected a finite number" +
                          (std::isfinite(p().scale) ? " in the range of float32" : ""));
    }
    if (!o_.softcap) return;
    const double least = p().dtype == DType::float64 ? DBL_MIN : static_cast<double>(FLT_MIN);
    if (!(*o_.softcap >= least && *o_.softcap <= limit)) {
      refuse("softcap", std::to_string(*o_.softcap) + ", expected a finite number above 0");
    }
    p().softcap = *o_.softcap;
  }

  void read_band() {
    const Band& band = o_.band;
    if (band.causal && band.right) refuse("right", "is given together with causal, which is right = 0");
    if (band.alignment && band.delta) refuse("delta", "is given together with alignment; name one of them");
    p().has_left = band.left.has_value();
    p().left = band.left.value_or(0);
    p().has_right = band.causal || band.right.has_value();
    p().right = band.right.value_or(0);
    const bool square = p().q_len == p().kv_len && !o_.q_lengths.present() && !o_.kv_lengths.present() &&
                        !o_.cu_q.present() && !o_.block_table.present();
    if (band.delta) {
      p().corner = core::corner_explicit;
      p().delta = *band.delta;
    } else if (band.alignment) {
      p().corner = *band.alignment == Alignment::top_left ? core::corner_top_left : core::corner_bottom_right;
    } else if (!band.unbounded() && !square) {
      refuse("alignment",
             "is missing: with Sq = " + std::to_string(p().q_len) + ", Sk = " + std::to_string(p().kv_len) +
                 " or with lengths, offsets or pages, a causal mask or window needs top_left (query i at key i) or "
                 "bottom_right (the last query at the last key), or an explicit delta");
    }
  }

  // A mask or bias as rank 4 with stride 0 along broadcast dimensions.
  TensorSpec broadcast(const char* name, const ConstTensorView& view) {
    if (view.rank < 1 || view.rank > max_rank) {
      refuse(name, "rank " + std::to_string(view.rank) + ", expected 1 to 4");
    }
    if (o_.cu_q.present()) refuse(name, "is given together with cu_q; packed sequences take no mask or bias arrays");
    const TensorSpec given = spec_of(name, view);
    const int64_t full[max_rank] = {p().batch, p().q_heads, p().q_len, p().kv_len};
    TensorSpec spec = given;
    spec.rank = max_rank;
    for (int d = 0; d < max_rank; ++d) {
      const int source = d - (max_rank - view.rank);
      const int64_t size = source < 0 ? 1 : view.shape[at(source)];
      if (size != 1 && size != full[d]) {
        refuse(name, "shape " + shape_of(view) + " does not broadcast to " + list_of(full, max_rank) +
                         " ([B, Hq, Sq, Sk], right-aligned, each dimension 1 or equal)");
      }
      spec.shape[at(d)] = size;
      spec.strides[at(d)] = size == 1 || source < 0 ? 0 : given.strides[at(source)];
    }
    return spec;
  }

  void read_masks() {
    if (o_.mask.present()) {
      expect_dtype("mask", o_.mask.dtype, DType::boolean, "; additive masks go into bias");
      p().mask = broadcast("mask", o_.mask);
      call_.buffers.mask = o_.mask.data;
    }
    if (o_.bias.present()) {
      if (o_.bias.dtype != DType::float32) expect_dtype("bias", o_.bias.dtype, p().dtype, " like q, or float32");
      p().bias = broadcast("bias", o_.bias);
      call_.buffers.bias = o_.bias.data;
    }
  }

  void read_vectors() {
    if (o_.alibi_slopes.present()) {
      const ConstTensorView& slopes = o_.alibi_slopes;
      if (slopes.rank != 1 && slopes.rank != 2) {
        refuse("alibi_slopes", "rank " + std::to_string(slopes.rank) + ", expected [Hq] or [B, Hq]");
      }
      p().alibi_slopes = spec_of("alibi_slopes", slopes);
      expect_dtype("alibi_slopes", slopes.dtype, DType::float32, "");
      if (slopes.rank == 1) {
        expect_shape("alibi_slopes", slopes, {p().q_heads}, "[Hq]");
        p().alibi_slopes.rank = 2;
        p().alibi_slopes.shape = {p().batch, p().q_heads};
        p().alibi_slopes.strides = {0, p().alibi_slopes.strides[0]};
      } else {
        expect_shape("alibi_slopes", slopes, {p().batch, p().q_heads}, "[B, Hq]");
      }
      call_.buffers.alibi_slopes = slopes.data;
    }
    if (o_.sinks.present()) {
      p().sinks = tensor_of_rank("sinks", o_.sinks, 1);
      expect_dtype("sinks", o_.sinks.dtype, DType::float32, "");
      expect_shape("sinks", o_.sinks, {p().q_heads}, "[Hq]");
      call_.buffers.sinks = o_.sinks.data;
    }
    if (o_.q_lengths.present()) {
      p().q_lengths = integer_vector("q_lengths", o_.q_lengths);
      expect_shape("q_lengths", o_.q_lengths, {p().batch}, "one length per batch item or packed sequence");
      call_.buffers.q_lengths = o_.q_lengths.data;
    }
    if (o_.kv_lengths.present()) {
      p().kv_lengths = integer_vector("kv_lengths", o_.kv_lengths);
      expect_shape("kv_lengths", o_.kv_lengths, {p().batch}, "one length per batch item or packed sequence");
      call_.buffers.kv_lengths = o_.kv_lengths.data;
    }
  }

  void read_dropout() {
    if (!o_.dropout) return;
    if (!(o_.dropout->p >= 0 && o_.dropout->p <= 1)) {
      refuse("dropout", "p = " + std::to_string(o_.dropout->p) + ", expected a number from 0 to 1");
    }
    p().has_dropout = o_.dropout->p > 0;
    p().dropout_p = o_.dropout->p;
    p().dropout_seed = o_.dropout->seed;
    p().dropout_offset = o_.dropout->offset;
    constexpr int64_t words = int64_t{1} << 32;  // the generator's counters hold 32 bits each
    int64_t head_rows = 0;
    if (__builtin_mul_overflow(p().batch, p().q_heads, &head_rows) || head_rows > words || p().q_len > words ||
        p().kv_len / 4 > words) {
      refuse("dropout", "counts B * Hq, Sq and Sk / 4 in 32 bits each, which this problem exceeds");
    }
  }

  // Lengths, offsets and pages in host memory; those on a device are clamped by the kernels instead.
  void check_lengths() {
    p().batch_invariant = o_.batch_invariant;
    if (t_.q.device.kind == DeviceKind::cpu) check_host_lengths(p(), call_.buffers);
  }

  void check_outputs() {
    const bool with_lse = t_.lse.present();
    check_output("o", t_.o);
    if (with_lse) check_output("lse", t_.lse);
    if (with_lse && both_addressed(t_.o, t_.lse) && share_elements(t_.o, t_.lse)) refuse("lse", "overlaps o");
  }

  static bool both_addressed(const ConstTensorView& a, const ConstTensorView& b) {
    return a.data != nullptr && b.data != nullptr;
  }

  void check_output(const char* name, const ConstTensorView& output) {
    if (overlaps_itself(output)) {
      refuse(name, "strides " + list_of(output.strides.data(), output.rank) + " make it overlap itself");
    }
    const struct {
      const char* name;
      const ConstTensorView& view;
    } inputs[] = {{"q", t_.q},
                  {"k", t_.k},
                  {"v", t_.v},
                  {"mask", o_.mask},
                  {"bias", o_.bias},
                  {"alibi_slopes", o_.alibi_slopes},
                  {"sinks", o_.sinks},
                  {"q_lengths", o_.q_lengths},
                  {"kv_lengths", o_.kv_lengths},
                  {"cu_q", o_.cu_q},
                  {"cu_k", o_.cu_k},
                  {"block_table", o_.block_table}};
    for (const auto& input : inputs) {
      if (both_addressed(output, input.view) && share_elements(output, input.view)) {
        refuse(name, std::string("overlaps ") + input.name);
      }
    }
  }

  const ForwardTensors& t_;
  const AttentionOptions& o_;
  Addresses addresses_;
  Call call_;
};

}  // namespace

Call checked_forward(const ForwardTensors& tensors, const AttentionOptions& options, Addresses addresses) {
  return Reader(tensors, options, addresses).call();
}

void check_matches_plan(const Problem& planned, const Problem& given) {
  const auto compare = [](const char* name, const TensorSpec& a, const TensorSpec& b) {
    if (a.present() != b.present()) refuse(name, b.present() ? "was absent in the plan" : "was present in the plan");
    if (!a.present()) return;
    if (a.dtype != b.dtype || a.rank != b.rank || a.shape != b.shape || a.strides != b.strides) {
      refuse(name, "dtype, shape or strides differ from the plan's");
    }
    if (b.alignment < a.alignment) {
      refuse(name, "is aligned to " + std::to_string(b.alignment) + " bytes, below the plan's " +
                       std::to_string(a.alignment));
    }
  };
  compare("q", planned.q, given.q);
  compare("k", planned.k, given.k);
  compare("v", planned.v, given.v);
  compare("o", planned.o, given.o);
  compare("lse", planned.lse, given.lse);
  compare("mask", planned.mask, given.mask);
  compare("bias", planned.bias, given.bias);
  compare("alibi_slopes", planned.alibi_slopes, given.alibi_slopes);
  compare("sinks", planned.sinks, given.sinks);
  compare("q_lengths", planned.q_lengths, given.q_lengths);
  compare("kv_lengths", planned.kv_lengths, given.kv_lengths);
  compare("cu_q", planned.cu_q, given.cu_q);
  compare("cu_k", planned.cu_k, given.cu_k);
  compare("block_table", planned.block_table, given.block_table);
  const auto numbers = [](const Problem& p) {
    return std::tuple(p.machine.kind, p.scale, p.softcap, p.has_left, p.left, p.has_right, p.right, p.corner, p.delta,
                      p.has_dropout, p.dropout_p, p.batch_invariant);
  };
  if (numbers(planned) != numbers(given)) {
    refuse("options", "scale, softcap, band, dropout's p, batch_invariant or device differ from the plan's");
  }
}

}  // namespace tilewise::api
