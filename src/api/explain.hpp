#pragma once

// Counts of a problem's work, and the explanation made from them.

#include "api/choose.hpp"
#include "api/validate.hpp"

namespace tilewise::api {

Explanation explained(const Call& call, const Choice& choice);

}  // namespace tilewise::api
