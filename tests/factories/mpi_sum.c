// SPDX-License-Identifier: Apache-2.0
// A rank of an MPI program: `mpi_sum FOLDER` touches 32 MiB, waits until it has
// been sampled (see held_programs.py), and prints what all ranks know: the sum
// of their numbers, the first one being 1.

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 32 << 20 };

int main(int argc, char **argv) {
  int rank, ranks, fifo;
  long number, sum;
  char path[4096], *memory, byte;

  if (argc != 2 || MPI_Init(&argc, &argv) != MPI_SUCCESS)
    return 2;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  memory = malloc(BYTES);
  if (memory == NULL)
    return 3;
  memset(memory, rank + 1, BYTES);
  snprintf(path, sizeof path, "%s/held-%ld", argv[1], (long)getpid());
  if (mkfifo(path, 0600) != 0 || (fifo = open(path, O_RDONLY)) < 0)
    return 4;
  while (read(fifo, &byte, 1) > 0)
    ;
  number = memory[BYTES - 1];
  MPI_Allreduce(&number, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d: the sum is %ld\n", rank, ranks, sum);
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40200000
  // MPI_Finalize of MPICH before 4.2 over UCX can wait for a rank that waits in
  // the barrier of PMI already, and does not answer (pmodels/mpich, 6596).
  MPI_Barrier(MPI_COMM_WORLD);
  fflush(stdout);
  // MPICH's mpirun kills the other ranks if one ends without this message.
  if (getenv("HYDI_CONTROL_FD") != NULL && getenv("PMI_FD") != NULL) {
    fifo = atoi(getenv("PMI_FD"));
    if (write(fifo, "cmd=finalize\n", 13) != 13 || read(fifo, &byte, 1) != 1)
      return 5;
  }
  _exit(0);
#endif
  MPI_Finalize();
  return 0;
}
