#pragma once

// Files in memory for the readers' tests, and a check that a reader refuses one in words.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "files/source.hpp"

namespace tilewise::files {

inline std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xff);
  return text;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  std::string text(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(text.data(), values.data(), text.size());
  return text;
}

inline MemorySource memory_file(const std::string& bytes) {
  return MemorySource("test.bin", std::as_bytes(std::span(bytes)));
}

// `read` must throw a FileError that names the file and holds `words`.
inline void expect_refused(const std::string& bytes, const std::string& words,
                           const std::function<void(const ByteSource&)>& read) {
  try {
    read(memory_file(bytes));
    ADD_FAILURE() << "accepted, expected an error with: " << words;
  } catch (const FileError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("test.bin: ")) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message << "\nexpected: " << words;
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
    EXPECT_LT(message.size(), 500U);
  }
}

}  // namespace tilewise::files
