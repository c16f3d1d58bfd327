#include "files/source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace tilewise::files {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out = "'";
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > longest) {
    // A multi-byte character may have been cut: drop its first bytes.
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0x80) != 0) out.pop_back();
    out += "...";
  }
  return out + "'";
}

void ByteSource::fail(const std::string& message) const { throw FileError(name_ + ": " + message); }

void MemorySource::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) fail("ends early");
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
}

FileSource::FileSource(const std::string& path) : ByteSource(path) {
  if (path.find('\0') != std::string::npos) fail("a file name cannot hold a zero byte");
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) fail(fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat status{};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail("is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

FileSource::~FileSource() { ::close(descriptor_); }

void FileSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) fail("ends early");
  constexpr std::size_t largest_read = std::size_t{1} << 30;  // some systems refuse more than 2 GiB in one call
  while (!out.empty()) {
    const ssize_t got =
        ::pread(descriptor_, out.data(), std::min(out.size(), largest_read), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) fail("became shorter while it was read");
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return {};
    if (size == 0) {
      empty = true;
    } else if (product > std::numeric_limits<std::int64_t>::max() / size) {
      return {};
    } else {
      product *= size;
    }
  }
  return empty ? 0 : product;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t longest = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), longest); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() > longest ? ", ...]" : "]");
}

}  // namespace tilewise::files
