# tilewise_target(name): C++20 without extensions, warnings, sanitizers, hidden symbols. Applied to all of our targets.
# NaN and infinities are part of the contract, so fast-math is never on.
function(tilewise_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion
                                           # Clang's also calls it shadowing when a lambda captures [x = x].
                                           $<$<CXX_COMPILER_ID:GNU>:-Wshadow>
                                           -Wnon-virtual-dtor -Wcast-align -Wold-style-cast)
  if(TILEWISE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TILEWISE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TILEWISE_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${TILEWISE_SANITIZE})
  endif()
endfunction()
