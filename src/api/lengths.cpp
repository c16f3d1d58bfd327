#include "api/lengths.hpp"

#include <string>

#include "api/describe.hpp"
#include "core/tile_range.h"
#include "kernel/sequence.hpp"

namespace tilewise::api {
namespace {

using std::int64_t;

std::string entry(int64_t index, int64_t value) {
  return "entry " + std::to_string(index) + " is " + std::to_string(value);
}

void check_offsets(const char* name, const TensorSpec& spec, const void* data, int64_t rows, const char* tensor) {
  if (!spec.present() || data == nullptr) return;
  int64_t before = 0;
  for (int64_t n = 0; n < spec.shape[0]; ++n) {
    const int64_t value = integer_at(spec, data, n);
    if (n == 0 && value != 0) refuse(name, entry(n, value) + ", expected 0");
    if (value < before) refuse(name, entry(n, value) + ", below the one before, " + std::to_string(before));
    if (value > rows) refuse(name, entry(n, value) + ", beyond the " + std::to_string(rows) + " rows of " + tensor);
    before = value;
  }
}

void check_lengths(const char* name, const TensorSpec& lengths, const void* data, const TensorSpec& offsets,
                   const void* offset_data, int64_t slot) {
  if (!lengths.present() || data == nullptr) return;
  for (int64_t b = 0; b < lengths.shape[0]; ++b) {
    const int64_t value = integer_at(lengths, data, b);
    int64_t limit = slot;
    if (offsets.present()) {
      if (offset_data == nullptr) return;
      limit = integer_at(offsets, offset_data, b + 1) - integer_at(offsets, offset_data, b);
    }
    if (value < 0 || value > limit) refuse(name, entry(b, value) + ", expected 0 to " + std::to_string(limit));
  }
}

void check_pages(const Problem& p, const Buffers& buffers) {
  if (!p.paged() || buffers.block_table == nullptr || buffers.kv_lengths == nullptr) return;
  const auto* table = static_cast<const std::int32_t*>(buffers.block_table);
  const int64_t pages = p.k.shape[0];
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t used = core::ceil_div(integer_at(p.kv_lengths, buffers.kv_lengths, b), p.page_size());
    for (int64_t n = 0; n < used; ++n) {
      const int64_t page = table[b * p.block_table.strides[0] + n * p.block_table.strides[1]];
      if (page < 0 || page >= pages) {
        refuse("block_table", "page [" + std::to_string(b) + ", " + std::to_string(n) + "] is " + std::to_string(page) +
                                  ", expected 0 to " + std::to_string(pages - 1));
      }
    }
  }
}

}  // namespace

void check_host_lengths(const Problem& p, const Buffers& buffers) {
  check_offsets("cu_q", p.cu_q, buffers.cu_q, p.q_len, "q");
  check_offsets("cu_k", p.cu_k, buffers.cu_k, p.kv_len, "k");
  check_lengths("q_lengths", p.q_lengths, buffers.q_lengths, p.cu_q, buffers.cu_q, p.q_len);
  check_lengths("kv_lengths", p.kv_lengths, buffers.kv_lengths, p.cu_k, buffers.cu_k, p.kv_len);
  check_pages(p, buffers);
}

}  // namespace tilewise::api
