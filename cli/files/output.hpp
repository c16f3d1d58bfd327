#pragma once

// Files that appear whole or not at all.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/source.hpp"

namespace tilewise::files {

struct OutputFile {
  std::string path;
  std::vector<std::span<const std::byte>> pieces;  // written one after the other
};

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Throws FileError when write_files could not put a file there: no such folder, no permission, a folder or a device in
// its place. Call it before long work.
void check_writable(const std::string& path);

// Writes all files beside their places (a temporary file in the same folder, synchronised), then renames each over what
// was there. When writing fails, nothing has appeared or changed. A symbolic link is followed; permissions of a
// replaced file are kept. SIGINT, SIGTERM and SIGHUP take effect only after the call. Throws FileError.
void write_files(std::span<const OutputFile> files);

// True when both paths lead to the same place, which need not exist yet.
bool same_place(const std::string& a, const std::string& b);

}  // namespace tilewise::files
