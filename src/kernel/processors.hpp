#pragma once

// How many threads this process should use: what the operating system and its administrator leave, and what the user
// asks for.

#include <string>

namespace tilewise {

// Processors in the affinity mask, cut to the cgroup's CPU quota; at least 1.
int available_processors();

// The CPU quota of this process's cgroup and of all its ancestors, v1 and v2, rounded up to whole processors; 0 if
// there is none. `root` stands before every path read ("" for the real file system), so that tests can build one.
int cgroup_processors(const std::string& root);

// A TILEWISE_NUM_THREADS as a count, from 1 to `limit`; 0 for null or empty. Anything else throws
// std::invalid_argument.
int threads_from_environment(const char* value, int limit);

}  // namespace tilewise
