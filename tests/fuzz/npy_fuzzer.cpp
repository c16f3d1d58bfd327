// Any bytes as a .npy file: parsed, or refused with a FileError and nothing else. What was parsed is written again, and
// reading that gives the same tensor.

#include <cstddef>
#include <cstdint>
#include <string>

#include "files/npy.hpp"
#include "fuzz/fail.hpp"

using namespace tilewise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const files::MemorySource source("input.npy", std::as_bytes(std::span(data, size)));
  verify::Tensor tensor;
  try {
    tensor = files::read_npy(source);
  } catch (const files::FileError&) {
    return 0;
  }

  std::string written = files::npy_header("again.npy", tensor.dtype(), tensor.shape());
  if (written.size() % 64 != 0) fuzz::fail("the data of a written file is not aligned to 64 bytes");
  const auto& storage = tensor.storage();
  written.append(reinterpret_cast<const char*>(storage.data()), storage.size());

  const files::MemorySource again("again.npy", std::as_bytes(std::span(written)));
  const verify::Tensor copy = files::read_npy(again);
  if (copy.dtype() != tensor.dtype()) fuzz::fail("the dtype changed on its way through a file");
  if (copy.shape() != tensor.shape()) fuzz::fail("the shape changed on its way through a file");
  if (copy.storage() != tensor.storage()) fuzz::fail("the bytes changed on their way through a file");
  return 0;
}
