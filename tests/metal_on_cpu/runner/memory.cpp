#include "memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace tilewise::metal_bench {
namespace {
constexpr std::size_t page = 4096;
constexpr std::size_t guard = std::size_t{1} << 22;  // wide enough that a wrong stride does not reach the next buffer
}  // namespace

GuardedMemory::GuardedMemory(std::size_t bytes) {
  const std::size_t aligned = (bytes + 15) / 16 * 16;
  const std::size_t body = (aligned + page - 1) / page * page;
  map_bytes_ = body + 2 * guard;
  map_ = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map_ == MAP_FAILED) throw std::bad_alloc();
  auto* const start = static_cast<std::byte*>(map_) + guard;
  if (body > 0 && mprotect(start, body, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  data_ = start + body - aligned;
}

GuardedMemory::~GuardedMemory() { munmap(map_, map_bytes_); }

ThreadgroupMemory::ThreadgroupMemory()
    : memory_(arena_bytes), base_(reinterpret_cast<std::uintptr_t>(memory_.data())) {}

void* ThreadgroupMemory::reserve(int id, std::size_t bytes, const char* name) {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] == id) return reinterpret_cast<void*>(arrays_[i].begin);
  }
  const std::size_t rounded = (bytes + 15) / 16 * 16;
  declared_ += rounded;
  if (used_ + rounded + red_zone > arena_bytes) return nullptr;
  Region array;
  array.name = name;
  array.begin = base_ + used_;
  array.bytes = bytes;
  array.writable = true;
  array.cells.resize(bytes);
  used_ += rounded + red_zone;
  std::memset(reinterpret_cast<void*>(array.begin), 0xff, bytes);
  ids_.push_back(id);
  arrays_.push_back(std::move(array));
  return reinterpret_cast<void*>(arrays_.back().begin);
}

void ThreadgroupMemory::poison() {
  for (const Region& array : arrays_) std::memset(reinterpret_cast<void*>(array.begin), 0xff, array.bytes);
}

Region* ThreadgroupMemory::find(std::uintptr_t address, std::size_t size) {
  for (Region& array : arrays_) {
    if (array.contains(address, size)) return &array;
  }
  return nullptr;
}

std::string ThreadgroupMemory::describe(std::uintptr_t address) const {
  const Region* nearest = nullptr;
  std::size_t distance = 0;
  for (const Region& array : arrays_) {
    const std::uintptr_t end = array.begin + array.bytes;
    const std::size_t d = address < array.begin ? array.begin - address : address >= end ? address - end : 0;
    if (nearest == nullptr || d < distance) {
      nearest = &array;
      distance = d;
    }
  }
  if (nearest == nullptr) return "threadgroup memory that no array owns";
  return "threadgroup array " + nearest->name + ", " + std::to_string(distance) +
         (address < nearest->begin ? " bytes before its start" : " bytes past its end");
}

}  // namespace tilewise::metal_bench
