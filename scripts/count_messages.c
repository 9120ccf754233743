// SPDX-License-Identifier: Apache-2.0
//
// Counts the messages that a rank sends, those within MPI's collectives as well: a library for LD_PRELOAD that puts
// itself between Open MPI 4 and the layer that sends its messages (mca_pml, whose functions are known by their place).
// MPI_Finalize writes "RANK messages bytes own" to a file RANK in the folder COUNT_MESSAGES; "own" are the messages that
// the program sends itself, by MPI_Isend. Used by measure_ranks.py.
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { kIsend = 10, kSend = 11 };  // in the list of functions of ompi/mca/pml/pml.h, Open MPI 4.0 and 4.1

typedef int (*Isend)(const void*, size_t, MPI_Datatype, int, int, int, MPI_Comm, void*);
typedef int (*Send)(const void*, size_t, MPI_Datatype, int, int, int, MPI_Comm);

extern void* mca_pml[];
static Isend isend;
static Send send;
static atomic_llong messages, bytes, own;

static void count(size_t elements, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  ++messages;
  bytes += (long long)elements * size;
}

static int counting_isend(const void* data, size_t elements, MPI_Datatype type, int to, int tag, int mode, MPI_Comm comm,
                          void* request) {
  count(elements, type);
  return isend(data, elements, type, to, tag, mode, comm, request);
}

static int counting_send(const void* data, size_t elements, MPI_Datatype type, int to, int tag, int mode, MPI_Comm comm) {
  count(elements, type);
  return send(data, elements, type, to, tag, mode, comm);
}

int MPI_Init_thread(int* argc, char*** argv, int wanted, int* given) {
  const int code = PMPI_Init_thread(argc, argv, wanted, given);
  isend = (Isend)mca_pml[kIsend];
  send = (Send)mca_pml[kSend];
  mca_pml[kIsend] = (void*)counting_isend;
  mca_pml[kSend] = (void*)counting_send;
  return code;
}

int MPI_Isend(const void* data, int elements, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  ++own;
  return PMPI_Isend(data, elements, type, to, tag, comm, request);
}

int MPI_Finalize(void) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* folder = getenv("COUNT_MESSAGES");
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", folder == NULL ? "." : folder, rank);
  FILE* file = fopen(path, "w");
  if (file != NULL) {
    fprintf(file, "%d %lld %lld %lld\n", rank, (long long)messages, (long long)bytes, (long long)own);
    fclose(file);
  }
  return PMPI_Finalize();
}
