#pragma once

// TILEWISE_API marks what the library exports; everything else is hidden. Building or using the static library defines
// TILEWISE_STATIC, so that a shared object that links it does not export our symbols again. Exception types carry the
// mark too: their type_info must be one and the same on both sides of a shared library.
#if defined(TILEWISE_STATIC)
#define TILEWISE_API
#else
#define TILEWISE_API __attribute__((visibility("default")))
#endif
