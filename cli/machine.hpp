#pragma once

// What a measurement's reader has to know of the machine and the build.

#include <nlohmann/json.hpp>
#include <string>

namespace tilewise::cli {

// "Intel(R) Xeon(R) Processor", "Apple M5"; "unknown" where the system does not say.
std::string cpu_model();

// Names of the instruction sets that kernels may use here, best last: "sse4 avx2 avx512".
std::string instruction_sets();

std::string compiler();

// Bytes of main memory.
double physical_memory();

// Threads that a call uses when nothing limits it.
int default_threads();

// Now, UTC, as in 2026-01-31T12:00:00Z.
std::string timestamp();

// {cpu, isa, gpu, compiler, version, date}, the "machine" of every JSON file that the command writes.
nlohmann::ordered_json machine_json();

}  // namespace tilewise::cli
