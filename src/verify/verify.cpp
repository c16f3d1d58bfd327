#include "verify/check.hpp"
