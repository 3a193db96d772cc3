// The function table of the instruction set that is being compiled.
#define HC_FLOAT(format) .format = multiply_float_panels<Weight##format>,
#define HC_INTEGER_8(format, ...) .format = multiply_panels<Format##format, 1>,
#define HC_INTEGER_14(format, ...) .format = multiply_panels<Format##format, 2>,
#define HC_UNPACK(format, ...) .format = unpack_output<Format##format>,
#define HC_UNPACK_FLOAT(format) .format = unpack_float_output<Weight##format>,
#define HC_ISA_TABLE(isa_name)                                                          \
  {.name = isa_name,                                                                    \
   .floats = {HC_CPU_FLOAT_FORMATS(HC_FLOAT)},                                          \
   .integers = {{HC_CPU_INTEGER_FORMATS(HC_INTEGER_8).quantize = quantize<1>},          \
                {HC_CPU_INTEGER_FORMATS(HC_INTEGER_14).quantize = quantize<2>}},        \
   .unpack = {HC_CPU_INTEGER_FORMATS(HC_UNPACK) HC_CPU_FLOAT_FORMATS(HC_UNPACK_FLOAT)}, \
   .to_half = to_half,                                                                  \
   .rotate_halves = rotate_halves,                                                      \
   .rotate_neighbours = rotate_neighbours,                                              \
   .rms_norm = rms_norm,                                                                \
   .gate_silu = gate_silu,                                                              \
   .gate_gelu_tanh = gate_gelu_tanh,                                                    \
   .gate_clamped_swiglu = gate_clamped_swiglu,                                          \
   .sigmoid_gate = sigmoid_gate,                                                        \
   .cap_and_scale = cap_and_scale,                                                      \
   .exponentials = exponentials,                                                        \
   .weighted_sum = weighted_sum,                                                        \
   .convolve = convolve,                                                                \
   .delta_gates = delta_gates,                                                          \
   .delta_step = delta_step,                                                            \
   .attend_pack = attend_pack,                                                          \
   .attend_chunk = attend_chunk,                                                        \
   .attend_widen = attend_widen,                                                        \
   .attend_merge = attend_merge,                                                        \
   .attend_finish = attend_finish,                                                      \
   .read_stream = read_stream,                                                          \
   .multiply_peak = multiply_peak}
