# Cross build for 64-bit Arm on Debian or Ubuntu: packages g++-aarch64-linux-gnu, libgtest-dev:arm64, libhwy-dev:arm64
# and qemu-user. Tests run under qemu-user as a processor with NEON and without SVE.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu cortex-a76 -L /usr/aarch64-linux-gnu)
# Static programs need no Arm loader and no Arm libraries when they run.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
