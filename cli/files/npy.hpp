#pragma once

// NumPy's .npy files, versions 1.0, 2.0 and 3.0, C order, little endian: <f8 <f4 <f2 <i8 <i4 |b1. What else NumPy can
// store (Fortran order, other dtypes, structures) is an error that says so. bfloat16 has no .npy form.
// Source: "A Simple File Format for NumPy Arrays", NEP 1, and numpy.lib.format.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "files/source.hpp"
#include "tilewise/types.hpp"
#include "verify/tensor.hpp"

namespace tilewise::files {

struct NpyHeader {
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset = 0;  // bytes; the data is exactly the rest of the file
};

// Checks the whole header, and that the rest of the file is what it promises. Throws FileError.
NpyHeader parse_npy_header(const ByteSource& source);

// The array, rank at most max_rank. Throws FileError.
verify::Tensor read_npy(const ByteSource& source);

// Everything before the data of a version 1.0 file. Throws FileError for bfloat16; `file` is for its message.
std::string npy_header(const std::string& file, DType dtype, std::span<const std::int64_t> shape);

}  // namespace tilewise::files
