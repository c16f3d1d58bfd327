#include "kernel/parallel.hpp"
