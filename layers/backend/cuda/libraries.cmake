# The CUDA compiler and libraries, in the toolkit's prefix or in the nvidia-* packages of a Python installation. Sets the
# targets convoy_cudnn and convoy_nccl. Each place can be given: CUDNN_INCLUDE_DIR, CUDNN_LIBRARY,
# CUDNN_FRONTEND_INCLUDE_DIR, NCCL_INCLUDE_DIR, NCCL_LIBRARY; the architectures by CMAKE_CUDA_ARCHITECTURES.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "GPU architectures; the last one as PTX, too")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
find_package(CUDAToolkit REQUIRED)

# Folders of Python packages: .../site-packages/nvidia/*/{include,lib} and .../site-packages/include; the first is where
# scripts/install_deps.sh puts cuDNN's frontend.
set(python_folders ${CMAKE_SOURCE_DIR}/build/cudnn-frontend)
foreach(python python3 /usr/bin/python3)
  execute_process(COMMAND ${python} -c "import sys; print(';'.join(sys.path))" OUTPUT_VARIABLE found
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND python_folders ${found})
endforeach()
set(package_includes)
set(package_libraries)
foreach(folder ${python_folders})
  file(GLOB includes LIST_DIRECTORIES true ${folder}/nvidia/*/include ${folder}/include)
  file(GLOB libraries LIST_DIRECTORIES true ${folder}/nvidia/*/lib)
  list(APPEND package_includes ${includes})
  list(APPEND package_libraries ${libraries})
endforeach()

find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ${package_includes} REQUIRED)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} PATHS ${package_libraries} REQUIRED)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ${package_includes} REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} PATHS ${package_libraries} REQUIRED)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDNN_INCLUDE_DIR} PATHS ${package_includes})
if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
  message(FATAL_ERROR "cudnn_frontend.h was not found: scripts/install_deps.sh --cuda installs it, or give its folder "
                      "with -DCUDNN_FRONTEND_INCLUDE_DIR=DIR")
endif()

add_library(convoy_cudnn INTERFACE)
target_include_directories(convoy_cudnn SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR} ${CUDNN_FRONTEND_INCLUDE_DIR}
                           ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(convoy_cudnn INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
target_link_libraries(convoy_cudnn INTERFACE ${CUDNN_LIBRARY} CUDA::cublasLt CUDA::cublas ${CUDA_nvrtc_LIBRARY}
                      CUDA::cudart_static)  # nvrtc by its path: the target would ask for the driver library too
add_library(convoy_nccl INTERFACE)
target_include_directories(convoy_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(convoy_nccl INTERFACE ${NCCL_LIBRARY} CUDA::cudart_static)
