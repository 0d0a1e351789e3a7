# How a library and a test are declared here. A target that
# includes many torch headers says so in its own CMakeLists.txt:
#   target_precompile_headers(laga_x PRIVATE pch.h)
# and another target with the same LINK may take over the result:
#   target_precompile_headers(x_test REUSE_FROM laga_x)

# laga_warnings(NAME): the warnings every target of ours is compiled with.
function(laga_warnings name)
  target_compile_options(${name} PRIVATE -Wall -Wextra)
  if(LAGA_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 at -O3 raises false alarms inside std::string: in operator+ (GCC bug
    # 105651), and for aggregates with a string member that are built in an
    # argument. clang's -Wconditional-uninitialized stands in (tools/tidy.py).
    target_compile_options(${name} PRIVATE -Wno-restrict -Wno-maybe-uninitialized)
  endif()
endfunction()

# laga_library(NAME SOURCES... LINK PUBLIC|PRIVATE ...): a static library whose
# headers are included as "laga/...".
function(laga_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  laga_warnings(${name})
  if(ARG_LINK)
    target_link_libraries(${name} ${ARG_LINK})
  endif()
endfunction()

# laga_test(NAME SOURCES... LINK libraries [TIMEOUT seconds]): one GoogleTest
# program, one ctest entry; its cases are listed by the program itself.
function(laga_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  laga_warnings(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # OpenMP threads that spin while they wait would steal the cores of the test
  # that runs beside this one.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT OMP_WAIT_POLICY=passive)
  add_dependencies(tests ${name})
endfunction()

# laga_python_tests(FOLDER): one ctest entry, `pytest`, for all test_*.py below
# FOLDER, which run the program at $LAGA_PROGRAM. Skipped where there is none
# (pytest's exit 5), or no .venv: `make test` makes that, maybe after CMake ran.
function(laga_python_tests folder)
  if(NOT TARGET laga)
    return()
  endif()
  add_test(NAME pytest WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMAND sh -c "test -x .venv/bin/python || exit 5; exec .venv/bin/python -m pytest -q '${folder}'")
  # Two processors: these tests start the program, and it starts threads.
  set_tests_properties(pytest PROPERTIES TIMEOUT 1800 SKIP_RETURN_CODE 5 PROCESSORS 2
    ENVIRONMENT "LAGA_PROGRAM=$<TARGET_FILE:laga>;PYTHONDONTWRITEBYTECODE=1;OMP_WAIT_POLICY=passive")
endfunction()
