# Language level, compiler cache, linker, sanitizers and the packages we use.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "laga needs g++ 12 or newer for C++20, found ${CMAKE_CXX_COMPILER_VERSION}")
endif()

# Release is CMake's own: -O3 -DNDEBUG and no debug information. -O3 rather than
# -O2 because g++ 12's -O2 vectorises only loops whose trip count it knows,
# which leaves out every reduction and conversion loop here. No -march: one
# binary runs on any x86-64 or Arm; kernels/ adds instruction sets a folder at
# a time and chooses at run time.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# An error is only useful where we can mend it: with the compiler that CI has.
# A newer one may know new warnings, which must not stop a user's build.
if(NOT DEFINED LAGA_WERROR)
  set(werror OFF)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    set(werror ON)
  endif()
  set(LAGA_WERROR ${werror} CACHE BOOL "Warnings are errors; default: with g++ 12")
endif()

option(LAGA_CCACHE "Compile through ccache where there is one" ON)
find_program(LAGA_CCACHE_PROGRAM ccache)
mark_as_advanced(LAGA_CCACHE_PROGRAM)
if(LAGA_CCACHE AND LAGA_CCACHE_PROGRAM)
  # A precompiled header is cached at all only with these two relaxations, and
  # with -fpch-preprocess, which lets g++ keep it when ccache preprocesses.
  # The base folder makes a second clone hit what the first one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${LAGA_CCACHE_PROGRAM})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

find_program(LAGA_MOLD_PROGRAM mold)
mark_as_advanced(LAGA_MOLD_PROGRAM)
if(LAGA_MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

if(LAGA_SANITIZE)
  # Undefined behaviour ends the program (else ctest would not see it), spans
  # and vectors check their bounds, and -g1 is enough for lines in a report.
  add_compile_options(-fsanitize=${LAGA_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -O1 -g1)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${LAGA_SANITIZE})
endif()

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
if(LAGA_TESTS)
  find_package(GTest REQUIRED)
endif()

# fmt without its library: torch's include folder brings a newer fmt than the
# system's libfmt, which then lacks the symbols. Header-only, each translation
# unit uses whichever version it sees; their inline namespaces keep them apart.
find_path(LAGA_FMT_INCLUDE_DIR fmt/format.h REQUIRED)
mark_as_advanced(LAGA_FMT_INCLUDE_DIR)
add_library(laga_fmt INTERFACE)
target_compile_definitions(laga_fmt INTERFACE FMT_HEADER_ONLY)
target_include_directories(laga_fmt SYSTEM INTERFACE ${LAGA_FMT_INCLUDE_DIR})

# MPI through its C interface: mpi.h's old C++ classes stay out. CMake looks for
# it with a C compiler.
if(NOT DEFINED LAGA_MPI OR LAGA_MPI)
  enable_language(C)
  find_package(MPI QUIET COMPONENTS C)
endif()
option(LAGA_MPI "Build the MPI backend; default: where MPI is found" ${MPI_C_FOUND})
if(LAGA_MPI)
  if(NOT MPI_C_FOUND)
    message(FATAL_ERROR "LAGA_MPI=ON, but no MPI was found (Debian: libopenmpi-dev, "
      "openmpi-bin). -DLAGA_MPI=OFF builds without it.")
  endif()
  message(STATUS "MPI: ${MPI_C_LIBRARIES}")
  add_library(laga_mpi INTERFACE)
  target_link_libraries(laga_mpi INTERFACE MPI::MPI_C)
  target_compile_definitions(laga_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
else()
  message(STATUS "MPI: none, ranks run as threads only")
endif()

if(LAGA_TORCH)
  find_package(CLI11 2.1 REQUIRED)
  include(LagaTorch)
endif()
