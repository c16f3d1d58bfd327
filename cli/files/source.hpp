#pragma once

// Bytes to parse: a file on disk or a block of memory, read at offsets and never past the end. Parsers allocate only
// what they have checked against size(), so a header that lies cannot make them allocate more than the file holds.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tilewise::files {

// A file that cannot be used. The message names the file, what is there and what was expected.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// `text` in single quotes for a message: control bytes as \xNN, at most 60 characters of it.
std::string in_quotes(std::string_view text);

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] virtual std::uint64_t size() const = 0;

  // Fills `out` from `offset` on. Throws FileError when the source ends before that.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Throws FileError "NAME: MESSAGE".
  [[noreturn]] void fail(const std::string& message) const;

 protected:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::span<const std::byte> bytes) : ByteSource(std::move(name)), bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::span<const std::byte> bytes_;
};

// A regular file. Directories, pipes, sockets and devices are refused without waiting for them.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::string& path);
  ~FileSource() override;
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Product of the sizes; nothing when a size is negative or the product of the non-zero sizes exceeds int64.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape);

// "[2, 3, 4]"
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace tilewise::files
