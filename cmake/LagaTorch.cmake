# libtorch as one imported target, `torch`; its headers count as system headers.
#
# Not by torch's own find_package(Torch): PyPI's wheel for Linux is the CUDA
# build, whose config stops without a CUDA toolkit although linking needs none.
# It also warns about a library that no wheel ships, and keeps what it found in
# the cache, so that a changed LAGA_TORCH_PREFIX would be ignored.
set(laga_torch_oldest 2.11)

if(LAGA_TORCH_PREFIX)
  set(candidates ${LAGA_TORCH_PREFIX} ${LAGA_TORCH_PREFIX}/torch)
else()
  file(GLOB candidates ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
endif()
set(torch_prefix "")
foreach(candidate IN LISTS candidates)
  if(EXISTS ${candidate}/lib/libtorch.so AND EXISTS ${candidate}/include/ATen)
    set(torch_prefix ${candidate})
    break()
  endif()
endforeach()
if(NOT torch_prefix)
  if(LAGA_TORCH_PREFIX)
    set(where "LAGA_TORCH_PREFIX=${LAGA_TORCH_PREFIX} has no include/ATen and lib/libtorch.so")
  else()
    set(where "no torch in .venv")
  endif()
  message(FATAL_ERROR "libtorch: ${where}. `make build` installs it; "
    "-DLAGA_TORCH_PREFIX=FOLDER takes one that you have (the folder `torch` of a "
    "Python installation, or an unpacked libtorch); -DLAGA_TORCH=OFF builds "
    "only what needs none.")
endif()

set(version_header ${torch_prefix}/include/torch/headeronly/version.h)
set(torch_version "")
if(EXISTS ${version_header})
  file(STRINGS ${version_header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]+" "." torch_version "${lines}")
  string(REGEX REPLACE "^\\." "" torch_version "${torch_version}")
  # Another torch in the same place is another build.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${version_header})
endif()
if(torch_version STREQUAL "" OR torch_version VERSION_LESS laga_torch_oldest)
  message(FATAL_ERROR "libtorch in ${torch_prefix}: version ${laga_torch_oldest} or "
    "newer is needed (found: '${torch_version}')")
endif()
message(STATUS "libtorch ${torch_version}: ${torch_prefix}")

# libtorch.so holds no symbols of its own: it is there to pull in the CUDA part
# of a CUDA build, so the linker must not drop it as unused.
# -fopenmp: at::parallel_for is silently serial in a file compiled without it.
# libgomp then comes from torch's own folder, the first one in the rpath, and
# since both have one soname a process loads only one.
add_library(torch INTERFACE IMPORTED)
target_include_directories(torch INTERFACE
  ${torch_prefix}/include ${torch_prefix}/include/torch/csrc/api/include)
target_compile_options(torch INTERFACE -fopenmp)
target_link_libraries(torch INTERFACE
  ${torch_prefix}/lib/libtorch.so ${torch_prefix}/lib/libtorch_cpu.so
  ${torch_prefix}/lib/libc10.so)
target_link_options(torch INTERFACE -fopenmp LINKER:--no-as-needed)
