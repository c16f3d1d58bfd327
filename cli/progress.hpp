#pragma once

// One line on standard error that says how far a long command is. It is rewritten in place, disappears when the object
// dies, and never appears when standard error is no terminal.

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace tilewise::cli {

class Progress {
 public:
  Progress() = default;
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `text` makes the line; it is called at most ten times a second.
  template <class Text>
  void show(const Text& text) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || (shown_ && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    shown_ = true;
    constexpr std::size_t width = 78;  // a longer line would wrap and stay behind
    const std::string line = text();
    fmt::print(stderr, "\r{}\033[K", std::string_view(line).substr(0, width));
    std::fflush(stderr);
  }

  void clear() {
    if (!shown_) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    shown_ = false;
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace tilewise::cli
