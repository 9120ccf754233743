// SPDX-License-Identifier: Apache-2.0
//
// Loops with vectors as wide as the CPU has, without intrinsics.
#pragma once

// Compiles a function for several instruction sets and picks the best at start. Only for leaf functions: code inside
// an OpenMP region is not cloned. Off under sanitizers, whose runtime is not up when the choice is made, and for
// compilers that do not know the x86-64 levels.
#if defined(CONVOY_SANITIZED) || !defined(__x86_64__) || !defined(__GNUC__) || __GNUC__ < 12 || defined(__clang__)
#define CONVOY_VECTORIZED
#else
#define CONVOY_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), noinline))
#endif
