/* mpi_version: which MPI library this process runs with. It may differ from the one of the build. */
#ifndef ENGINE_COMM_MPI_VERSION_H
#define ENGINE_COMM_MPI_VERSION_H

enum { COMM_MPI_VERSION_BYTES = 64 };

/* The first words of what the library says: "Open MPI v4.1.4"; "" in a build without MPI. */
void comm_mpi_version(char out[COMM_MPI_VERSION_BYTES]);

#endif
