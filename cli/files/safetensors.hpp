#pragma once

// Safetensors files: 8 bytes of header length, a JSON header, the tensors' bytes. The whole header is checked when the
// file is opened, by the format's own rules: no name twice, offsets inside the file, without overlaps, holes or bytes
// left over, sizes that fit the shapes. A tensor of a dtype that tilewise does not use is an error only when it is
// read. Source: the safetensors format description (github.com/huggingface/safetensors).

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "files/source.hpp"
#include "tilewise/types.hpp"
#include "verify/tensor.hpp"

namespace tilewise::files {

struct StoredTensor {
  std::string dtype;                // as written: "F32", "BF16", ...
  std::vector<std::int64_t> shape;  // non-negative
  std::uint64_t begin = 0;          // bytes into the data section
  std::uint64_t end = 0;
};

class Safetensors {
 public:
  // Reads and checks the header; `source` must outlive this object. Throws FileError.
  explicit Safetensors(const ByteSource& source);

  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }

  // The tensor: F64, F32, F16, BF16, BOOL, I32 or I64, rank at most max_rank. Throws FileError otherwise.
  [[nodiscard]] verify::Tensor read(const std::string& name) const;

 private:
  const ByteSource& source_;
  std::uint64_t data_offset_ = 0;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  const verify::Tensor* tensor;  // row-major
};

// The header of a file that holds `tensors`; their bytes follow it in the order that this call leaves them in: largest
// elements first, so that every tensor is aligned to its elements, then by name.
std::string safetensors_header(std::vector<NamedTensor>& tensors);

}  // namespace tilewise::files
