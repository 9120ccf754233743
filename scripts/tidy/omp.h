// SPDX-License-Identifier: Apache-2.0
//
// For clang-tidy only, where there is no libomp: clang cannot read GCC's <omp.h>. What convoy calls of OpenMP 4.5. Never
// part of a build.
#pragma once

extern "C" {
int omp_get_max_threads(void);
int omp_get_num_procs(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
void omp_set_dynamic(int dynamic);
void omp_set_num_threads(int threads);
}
