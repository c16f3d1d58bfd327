// Any bytes as a .safetensors file: opened, or refused with a FileError and nothing else. The tensors of an opened file
// tile its data exactly; those that can be read are written again, and reading that gives the same tensors.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "files/safetensors.hpp"
#include "fuzz/fail.hpp"

using namespace tilewise;

namespace {

std::optional<verify::Tensor> read(const files::Safetensors& file, const std::string& name) {
  try {
    return file.read(name);
  } catch (const files::FileError&) {
    return {};  // a dtype or rank that tilewise does not use
  }
}

void check_written_again(const std::map<std::string, verify::Tensor>& tensors) {
  std::vector<files::NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, &tensor});
  std::string written = files::safetensors_header(named);
  if (written.size() % 8 != 0) fuzz::fail("the data of a written file is not aligned to 8 bytes");
  for (const files::NamedTensor& one : named) {
    const auto& storage = one.tensor->storage();
    written.append(reinterpret_cast<const char*>(storage.data()), storage.size());
  }

  const files::MemorySource source("again.safetensors", std::as_bytes(std::span(written)));
  const files::Safetensors again(source);
  if (again.tensors().size() != tensors.size()) fuzz::fail("the number of tensors changed on its way through a file");
  for (const auto& [name, tensor] : tensors) {
    const verify::Tensor copy = again.read(name);
    if (copy.dtype() != tensor.dtype()) fuzz::fail("the dtype changed on its way through a file");
    if (copy.shape() != tensor.shape()) fuzz::fail("the shape changed on its way through a file");
    if (copy.storage() != tensor.storage()) fuzz::fail("the bytes changed on their way through a file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const files::MemorySource source("input.safetensors", std::as_bytes(std::span(data, size)));
  std::optional<files::Safetensors> file;
  try {
    file.emplace(source);
  } catch (const files::FileError&) {
    return 0;
  }

  std::uint64_t bytes = 0;
  std::map<std::string, verify::Tensor> tensors;
  for (const auto& [name, stored] : file->tensors()) {
    bytes += stored.end - stored.begin;
    if (auto tensor = read(*file, name)) {
      if (tensor->storage().size() != stored.end - stored.begin)
        fuzz::fail("a tensor has other bytes than its offsets");
      tensors.emplace(name, std::move(*tensor));
    }
  }
  if (bytes > size) fuzz::fail("the tensors have more bytes than the file");
  check_written_again(tensors);
  return 0;
}
