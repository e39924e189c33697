// Part of the STAND-INS that the tests load instead of the real libraries. Never shipped.
//
// The element types of a collective as bits, and sums in them, rounded as a GPU rounds.

#ifndef STANDIN_ELEMENTS_H
#define STANDIN_ELEMENTS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float bfloat16_float(uint16_t bits) { return bits_float((uint32_t)bits << 16); }

// To the nearest, ties to even.
static inline uint16_t float_bfloat16(float value) {
  uint32_t bits = float_bits(value);
  if (value != value) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float half_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, fraction = half & 0x3ff;
  if (exponent == 31) return bits_float(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
  // Zero and the subnormal numbers: fraction * 2^-24.
  float value = (float)fraction * (1.0f / 16777216.0f);
  return sign != 0 ? -value : value;
}

// To the nearest, ties to even.
static inline uint16_t float_half(float value) {
  uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 leaves 2^-24 as the last place of the float, which rounds as wanted.
    return (uint16_t)(sign | (float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f)));
  }
  magnitude += 0xfff + ((magnitude >> 13) & 1);
  return (uint16_t)(sign | ((magnitude - (112u << 23)) >> 13));
}

#endif
