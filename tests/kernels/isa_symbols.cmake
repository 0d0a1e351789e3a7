# cmake -DNM=nm -DOBJECTS=a.o|b.o -P isa_symbols.cmake
# Fails where an object file defines a symbol that another file may replace
# (W, V: weak; u: unique in the process), and names all of them.
string(REPLACE "|" ";" objects "${OBJECTS}")
if(NOT objects)
  message(FATAL_ERROR "isa_symbols: no object files")
endif()
set(shared "")
foreach(object IN LISTS objects)
  execute_process(COMMAND ${NM} -C --defined-only ${object}
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," symbols "${symbols}")
  string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
  # Not code but a pointer to the runtime's, equal in all files.
  list(FILTER symbols EXCLUDE REGEX " V DW\\.ref\\.")
  list(FILTER symbols INCLUDE REGEX "^[0-9a-f]+ [WVu] ")
  foreach(symbol IN LISTS symbols)
    string(APPEND shared "\n  ${object}: ${symbol}")
  endforeach()
endforeach()
if(shared)
  message(FATAL_ERROR "isa_symbols: weak symbols, shared with other files:${shared}")
endif()
