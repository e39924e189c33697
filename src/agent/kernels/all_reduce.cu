// Data of the all-reduce: fills the send buffers and checks the results, on the GPU.
//
// CUDA C++ for NVRTC, without any header. all_reduce.ptx beside this file is what NVRTC 12.1 makes of it for compute_60
// (tests/rig/kernels.sh); a driver of CUDA 12.1 or newer translates that for the GPU that it finds. The PTX is part of
// the agent; a change here needs a new all_reduce.ptx.
//
// Each element is made of its index and a seed alone, so every rank can check every element without knowing what others
// hold. At most 16 ranks contribute to one element, in slots that start at a rank chosen by chance; the others hold
// zero. A contribution is an integer of at most LARGEST, which is such that the sum of 16 of them, and every partial sum,
// is exact in the element's type. So the sum does not depend on the order of the additions, and results are compared bit
// by bit.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

#define SLOTS 16u

// A splitmix64 step on the index.
static __device__ __forceinline__ u64 mix(u64 seed, u64 index) {
  u64 x = index * 0x9E3779B97F4A7C15ull + seed;
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 31;
  return x;
}

// The element types: the bits they are stored as, the largest contribution, and the bits of an integer.

struct Float {
  typedef u32 Bits;
  enum { LARGEST = 524287 };  // 16 * 524287 < 2^24
  static __device__ __forceinline__ Bits of(int value) { return __float_as_uint((float)value); }
};

struct Half {
  typedef u16 Bits;
  enum { LARGEST = 127 };  // 16 * 127 < 2^11
  static __device__ __forceinline__ Bits of(int value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"((float)value));
    return bits;
  }
};

struct Bfloat16 {
  typedef u16 Bits;
  enum { LARGEST = 15 };  // 16 * 15 < 2^8
  // The integer needs 8 bits at most, so the lower half of the float is zero.
  static __device__ __forceinline__ Bits of(int value) { return (u16)(__float_as_uint((float)value) >> 16); }
};

template <typename Type>
static __device__ __forceinline__ int contribution(u64 element, u32 slot) {
  return (int)(mix(element, slot) % (u64)(2 * Type::LARGEST + 1)) - Type::LARGEST;
}

// The rank that contributes in slot 0.
static __device__ __forceinline__ u32 first_rank(u64 element, u32 ranks) { return (u32)(element >> 32) % ranks; }

static __device__ __forceinline__ u64 first_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

static __device__ __forceinline__ u64 index_step() { return (u64)gridDim.x * blockDim.x; }

// What `rank` sends.
template <typename Type>
static __device__ __forceinline__ void fill(typename Type::Bits *data, u64 count, u32 rank, u32 ranks, u64 seed) {
  const u32 slots = ranks < SLOTS ? ranks : SLOTS;
  for (u64 index = first_index(); index < count; index += index_step()) {
    const u64 element = mix(seed, index);
    const u32 start = first_rank(element, ranks);
    const u32 slot = rank >= start ? rank - start : rank + (ranks - start);
    data[index] = Type::of(slot < slots ? contribution<Type>(element, slot) : 0);
  }
}

// Adds the number of wrong elements to result[0] and lowers result[1] to the smallest index among them.
template <typename Type>
static __device__ __forceinline__ void check(const typename Type::Bits *data, u64 count, u32 ranks, u64 seed,
                                             u64 *result) {
  const u32 slots = ranks < SLOTS ? ranks : SLOTS;
  u64 wrong = 0;
  u64 smallest = ~0ull;
  for (u64 index = first_index(); index < count; index += index_step()) {
    const u64 element = mix(seed, index);
    int sum = 0;
    for (u32 slot = 0; slot < slots; slot++) sum += contribution<Type>(element, slot);
    if (data[index] != Type::of(sum)) {
      wrong++;
      if (index < smallest) smallest = index;
    }
  }
  if (wrong != 0) {
    atomicAdd(&result[0], wrong);
    atomicMin(&result[1], smallest);
  }
}

#define KERNELS(name, Type)                                                                                            \
  extern "C" __global__ void rdmaprep_fill_##name(Type::Bits *data, u64 count, u32 rank, u32 ranks, u64 seed) {        \
    fill<Type>(data, count, rank, ranks, seed);                                                                        \
  }                                                                                                                    \
  extern "C" __global__ void rdmaprep_check_##name(const Type::Bits *data, u64 count, u32 ranks, u64 seed,             \
                                                   u64 *result) {                                                      \
    check<Type>(data, count, ranks, seed, result);                                                                     \
  }

KERNELS(float, Float)
KERNELS(half, Half)
KERNELS(bfloat16, Bfloat16)
