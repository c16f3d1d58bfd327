#pragma once

// The version of these headers; `tilewise::version()` is the version of the library that was linked.
#define TILEWISE_VERSION_MAJOR 0
#define TILEWISE_VERSION_MINOR 1
#define TILEWISE_VERSION_PATCH 0
#define TILEWISE_VERSION "0.1.0"
