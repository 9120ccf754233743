# SPDX-License-Identifier: Apache-2.0
#
# Cross-compiles for 64-bit Arm Linux with Debian's g++-aarch64-linux-gnu against the system in the folder
# CONVOY_SYSROOT: one with the packages of scripts/install_deps.sh. scripts/test_aarch64.sh makes one. Tests run under
# qemu-aarch64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CONVOY_SYSROOT "$ENV{CONVOY_SYSROOT}" CACHE PATH "Folder with the system to compile for")
if(NOT EXISTS "${CONVOY_SYSROOT}/usr/include")
  message(FATAL_ERROR "CONVOY_SYSROOT = \"${CONVOY_SYSROOT}\" has no usr/include "
                      "(name the folder of an arm64 system; scripts/test_aarch64.sh makes one)")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CONVOY_SYSROOT)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSROOT "${CONVOY_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH "${CONVOY_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# mpicc, h5cc and pkg-config of this machine would name this machine's libraries; Debian has these in folders of their own.
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY "${CONVOY_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so" CACHE FILEPATH "")
set(HDF5_C_COMPILER_EXECUTABLE /bin/false CACHE FILEPATH "")
set(ENV{PKG_CONFIG_LIBDIR} "${CONVOY_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CONVOY_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CONVOY_SYSROOT}")
set(CMAKE_INCLUDE_PATH /usr/include/hdf5/serial /usr/lib/aarch64-linux-gnu/openmpi/include)
set(CMAKE_LIBRARY_PATH /usr/lib/aarch64-linux-gnu/hdf5/serial)

find_program(QEMU_AARCH64 NAMES qemu-aarch64-static qemu-aarch64)
if(QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${QEMU_AARCH64};-L;${CONVOY_SYSROOT}")
endif()
