#include "files/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

namespace tilewise::files {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& message) { throw FileError(path + ": " + message); }

[[noreturn]] void fail_with_errno(const std::string& path, const char* what) {
  fail(path, fmt::format("{}: {}", what, std::strerror(errno)));
}

// Where a rename has to go so that a link stays a link.
fs::path place_of(const std::string& path) {
  std::error_code error;
  const fs::path place = fs::is_symlink(fs::symlink_status(path, error)) ? fs::canonical(path, error) : fs::path(path);
  return error || place.empty() ? fs::path(path) : place;
}

fs::path folder_of(const fs::path& place) { return place.has_parent_path() ? place.parent_path() : fs::path("."); }

volatile std::sig_atomic_t pending_signal = 0;

// Holds signals back while temporary files exist, for the whole process: blocking them would only shift them to a
// thread of the pool.
class SignalsDeferred {
 public:
  SignalsDeferred() {
    struct sigaction defer{};
    defer.sa_handler = [](int signal) { pending_signal = signal; };
    defer.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < signals.size(); ++i) {
      ::sigaction(signals[i], nullptr, &saved_[i]);
      if (saved_[i].sa_handler != SIG_IGN) ::sigaction(signals[i], &defer, nullptr);
    }
  }
  ~SignalsDeferred() {
    for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &saved_[i], nullptr);
    if (const int signal = pending_signal; signal != 0) {
      pending_signal = 0;
      std::raise(signal);
    }
  }
  SignalsDeferred(const SignalsDeferred&) = delete;
  SignalsDeferred& operator=(const SignalsDeferred&) = delete;

 private:
  static constexpr std::array<int, 3> signals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, signals.size()> saved_{};
};

// A file beside `place` that is removed again unless it is published.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : path_(path), place_(place_of(path)) {
    for (int attempt = 0; descriptor_ < 0; ++attempt) {
      temporary_ = folder_of(place_) / fmt::format(".tilewise-{}-{}.tmp", ::getpid(), attempt);
      descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ < 0 && (errno != EEXIST || attempt > 1000)) fail_with_errno(path_, "cannot be written");
    }
  }
  ~Temporary() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!published_) ::unlink(temporary_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void write(std::span<const std::byte> bytes) const {
    constexpr std::size_t largest_write = std::size_t{1} << 30;
    while (!bytes.empty()) {
      const ssize_t done = ::write(descriptor_, bytes.data(), std::min(bytes.size(), largest_write));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail_with_errno(path_, "cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

  void synchronise() {
    struct stat replaced{};
    if (::stat(place_.c_str(), &replaced) == 0) ::fchmod(descriptor_, replaced.st_mode & 07777);
    if (::fsync(descriptor_) != 0) fail_with_errno(path_, "cannot be written");
    const int closed = ::close(descriptor_);
    descriptor_ = -1;
    if (closed != 0) fail_with_errno(path_, "cannot be written");
  }

  void publish() {
    if (::rename(temporary_.c_str(), place_.c_str()) != 0) fail_with_errno(path_, "cannot be replaced");
    published_ = true;
    // The rename itself survives a crash only once its folder is on disk; some file systems refuse this, harmlessly.
    const int folder = ::open(folder_of(place_).c_str(), O_RDONLY | O_CLOEXEC);
    if (folder >= 0) {
      ::fsync(folder);
      ::close(folder);
    }
  }

 private:
  std::string path_;
  fs::path place_;
  fs::path temporary_;
  int descriptor_ = -1;
  bool published_ = false;
};

}  // namespace

void check_writable(const std::string& path) {
  if (path.empty()) fail("''", "a file name is expected");
  if (path.find('\0') != std::string::npos) fail(in_quotes(path), "a file name cannot hold a zero byte");
  const fs::path place = place_of(path);
  struct stat status{};
  if (::stat(place.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) fail(path, "cannot be written: it is not a regular file");
    if (::access(place.c_str(), W_OK) != 0) fail_with_errno(path, "cannot be written");
  } else if (errno != ENOENT || path.back() == '/') {
    fail_with_errno(path, "cannot be written");
  }
  if (::access(folder_of(place).c_str(), W_OK | X_OK) != 0) {
    fail_with_errno(path, "cannot be written into its folder");
  }
}

void write_files(std::span<const OutputFile> files) {
  for (const OutputFile& file : files) check_writable(file.path);
  const SignalsDeferred deferred;
  std::vector<std::unique_ptr<Temporary>> temporaries;
  for (const OutputFile& file : files) {
    temporaries.push_back(std::make_unique<Temporary>(file.path));
    for (const std::span<const std::byte> piece : file.pieces) temporaries.back()->write(piece);
    temporaries.back()->synchronise();
  }
  for (const auto& temporary : temporaries) temporary->publish();
}

bool same_place(const std::string& a, const std::string& b) {
  const auto normal = [](const std::string& path) {
    std::error_code error;
    const fs::path place = place_of(path);
    const fs::path folder = fs::weakly_canonical(fs::absolute(folder_of(place), error), error);
    return folder / place.filename();
  };
  return normal(a) == normal(b);
}

}  // namespace tilewise::files
