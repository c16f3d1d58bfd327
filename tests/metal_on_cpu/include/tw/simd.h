// Barriers, simdgroup operations and threadgroup arrays. A lane posts an argument block and sleeps; when all lanes of
// the simdgroup have come, one function reads every block and writes every result.
#ifndef TW_SIMD_H
#define TW_SIMD_H

#include "tw/math.h"

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
TW_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<uint>(a) | static_cast<uint>(b));
}
TW_INLINE void threadgroup_barrier(mem_flags flags) { tw_threadgroup_barrier(static_cast<uint>(flags)); }
TW_INLINE void simdgroup_barrier(mem_flags flags) { tw_simdgroup_barrier(static_cast<uint>(flags)); }

}  // namespace metal

namespace tw {

constexpr int lanes = 32;

template <class T, int id>
TW_INLINE T& threadgroup_array(const char* name) {
  return *static_cast<T*>(tw_threadgroup_array(id, sizeof(T), name));
}

template <class T>
struct Exchange {
  T in;
  T out;
  int argument;  // source lane or distance
};

template <class T, class Pick>
TW_UNTRACED void exchange(void* const* posted) {
  for (int i = 0; i < lanes; ++i) {
    if (posted[i] == nullptr) continue;
    Exchange<T>& mine = *static_cast<Exchange<T>*>(posted[i]);
    const int from = Pick::from(i, mine.argument);
    // Reading from a lane that does not exist or is out of range is undefined on the GPU: poison shows it.
    if (from < 0 || from >= lanes || posted[from] == nullptr) {
      if (!Pick::keeps_own) tw_report("simd", "shuffle from a lane outside the simdgroup");
      mine.out = mine.in;
    } else {
      mine.out = static_cast<Exchange<T>*>(posted[from])->in;
    }
  }
}

struct PickXor {
  enum { keeps_own = 0 };
  static int from(int lane, int mask) { return lane ^ mask; }
};
struct PickLane {
  enum { keeps_own = 0 };
  static int from(int, int lane) { return lane; }
};
struct PickUp {  // from a lower lane; the lowest lanes keep their own value
  enum { keeps_own = 1 };
  static int from(int lane, int delta) { return lane - delta; }
};
struct PickDown {
  enum { keeps_own = 1 };
  static int from(int lane, int delta) { return lane + delta; }
};

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Multiply {
  template <class T>
  static T apply(T a, T b) {
    return a * b;
  }
};
struct Max {
  static float apply(float a, float b) { return __builtin_fmaxf(a, b); }
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Min {
  static float apply(float a, float b) { return __builtin_fminf(a, b); }
  template <class T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return a | b;
  }
};

template <class T>
struct Storage {
  typedef T type;
};
#ifdef TW_COUNTING
template <>
struct Storage<Float> {
  typedef float type;
};
#endif

// A butterfly: the order that the hardware's own reduction is assumed to have.
template <class T, class Op>
TW_UNTRACED void reduce(void* const* posted) {
  T value[lanes];
  bool present[lanes];
  for (int i = 0; i < lanes; ++i) {
    present[i] = posted[i] != nullptr;
    if (present[i]) value[i] = static_cast<Exchange<T>*>(posted[i])->in;
  }
  for (int step = 1; step < lanes; step *= 2) {
    T next[lanes];
    bool next_present[lanes];
    for (int i = 0; i < lanes; ++i) {
      const int j = i ^ step;
      next_present[i] = present[i] || present[j];
      const int low = i < j ? i : j, high = i < j ? j : i;
      if (present[low] && present[high]) {
        next[i] = Op::apply(value[low], value[high]);
      } else if (next_present[i]) {
        next[i] = present[i] ? value[i] : value[j];
      }
    }
    for (int i = 0; i < lanes; ++i) {
      present[i] = next_present[i];
      if (present[i]) value[i] = next[i];
    }
  }
  for (int i = 0; i < lanes; ++i) {
    if (posted[i] != nullptr) static_cast<Exchange<T>*>(posted[i])->out = value[i];
  }
}

template <class Pick, class T>
TW_INLINE T shuffle(T value, int argument) {
  Exchange<T> block = {value, value, argument};
  tw_collective(tw_op_shuffle, &block, &exchange<T, Pick>);
  return block.out;
}

template <class Op, class T>
TW_INLINE T reduction(T value) {
  typedef typename Storage<T>::type S;
  Exchange<S> block = {static_cast<S>(value), static_cast<S>(value), 0};
  tw_collective(tw_op_reduce, &block, &reduce<S, Op>);
  return T(block.out);
}

struct Vote {
  bool in;
  uint ballot;
  uint active;
};
TW_UNTRACED inline void vote(void* const* posted) {
  uint ballot = 0, active = 0;
  for (int i = 0; i < lanes; ++i) {
    if (posted[i] == nullptr) continue;
    active |= 1u << i;
    if (static_cast<Vote*>(posted[i])->in) ballot |= 1u << i;
  }
  for (int i = 0; i < lanes; ++i) {
    if (posted[i] == nullptr) continue;
    static_cast<Vote*>(posted[i])->ballot = ballot;
    static_cast<Vote*>(posted[i])->active = active;
  }
}
TW_INLINE Vote cast_vote(bool x) {
  Vote block = {x, 0, 0};
  tw_collective(tw_op_vote, &block, &vote);
  return block;
}

}  // namespace tw

namespace metal {

template <class T>
TW_INLINE T simd_shuffle(T x, ushort lane) {
  return tw::shuffle<tw::PickLane>(x, lane);
}
template <class T>
TW_INLINE T simd_shuffle_xor(T x, ushort mask) {
  return tw::shuffle<tw::PickXor>(x, mask);
}
template <class T>
TW_INLINE T simd_shuffle_up(T x, ushort delta) {
  return tw::shuffle<tw::PickUp>(x, delta);
}
template <class T>
TW_INLINE T simd_shuffle_down(T x, ushort delta) {
  return tw::shuffle<tw::PickDown>(x, delta);
}
template <class T>
TW_INLINE T simd_broadcast(T x, ushort lane) {
  return tw::shuffle<tw::PickLane>(x, lane);
}
template <class T>
TW_INLINE T simd_broadcast_first(T x) {
  return tw::shuffle<tw::PickLane>(x, 0);
}
template <class T>
TW_INLINE T simd_sum(T x) {
  return tw::reduction<tw::Sum>(x);
}
template <class T>
TW_INLINE T simd_product(T x) {
  return tw::reduction<tw::Multiply>(x);
}
template <class T>
TW_INLINE T simd_max(T x) {
  return tw::reduction<tw::Max>(x);
}
template <class T>
TW_INLINE T simd_min(T x) {
  return tw::reduction<tw::Min>(x);
}
template <class T>
TW_INLINE T simd_and(T x) {
  return tw::reduction<tw::And>(x);
}
template <class T>
TW_INLINE T simd_or(T x) {
  return tw::reduction<tw::Or>(x);
}

class simd_vote {
 public:
  typedef ulong vote_t;
  TW_INLINE explicit constexpr simd_vote(vote_t bits, uint active = ~0u) : bits_(bits), active_(active) {}
  TW_INLINE explicit constexpr operator vote_t() const { return bits_; }
  TW_INLINE bool any() const { return bits_ != 0; }
  TW_INLINE bool all() const { return bits_ == active_; }

 private:
  vote_t bits_;
  uint active_;
};
TW_INLINE simd_vote simd_ballot(bool x) {
  const tw::Vote v = tw::cast_vote(x);
  return simd_vote(v.ballot, v.active);
}
TW_INLINE simd_vote simd_active_threads_mask() {
  const tw::Vote v = tw::cast_vote(true);
  return simd_vote(v.ballot, v.active);
}
TW_INLINE bool simd_any(bool x) { return tw::cast_vote(x).ballot != 0; }
TW_INLINE bool simd_all(bool x) {
  const tw::Vote v = tw::cast_vote(x);
  return v.ballot == v.active;
}
TW_INLINE bool simd_is_first() { return tw_lane_index() == 0; }

}  // namespace metal

#endif
