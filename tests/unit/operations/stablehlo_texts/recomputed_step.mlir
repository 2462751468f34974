module @jit_recomputed attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8x8xf32>, %arg1: tensor<8x8xf32>, %arg2: tensor<8x8xf32>, %arg3: tensor<2x8xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<8x8xf32> {jax.result_info = "result[1][0]"}, tensor<8x8xf32> {jax.result_info = "result[1][1]"}, tensor<8x8xf32> {jax.result_info = "result[1][2]"}) {
    %0 = stablehlo.dot_general %arg3, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %1 = stablehlo.tanh %0 : tensor<2x8xf32>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %3 = stablehlo.tanh %2 : tensor<2x8xf32>
    %4 = stablehlo.dot_general %3, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %5 = stablehlo.tanh %4 : tensor<2x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x8xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %8:5 = stablehlo.optimization_barrier %arg0, %arg1, %arg2, %arg3, %7 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>
    %9 = stablehlo.dot_general %8#3, %8#0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %10 = stablehlo.tanh %9 : tensor<2x8xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %12 = stablehlo.subtract %11, %10 : tensor<2x8xf32>
    %13 = stablehlo.dot_general %10, %8#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %14 = stablehlo.tanh %13 : tensor<2x8xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %16 = stablehlo.subtract %15, %14 : tensor<2x8xf32>
    %17 = stablehlo.dot_general %14, %8#2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %18 = stablehlo.tanh %17 : tensor<2x8xf32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %20 = stablehlo.subtract %19, %18 : tensor<2x8xf32>
    %21 = stablehlo.multiply %8#4, %20 : tensor<2x8xf32>
    %22 = stablehlo.multiply %21, %18 : tensor<2x8xf32>
    %23 = stablehlo.add %21, %22 : tensor<2x8xf32>
    %24 = stablehlo.dot_general %23, %14, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
    %25 = stablehlo.transpose %24, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %26 = stablehlo.dot_general %23, %8#2, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %27 = stablehlo.multiply %26, %16 : tensor<2x8xf32>
    %28 = stablehlo.multiply %27, %14 : tensor<2x8xf32>
    %29 = stablehlo.add %27, %28 : tensor<2x8xf32>
    %30 = stablehlo.dot_general %29, %10, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
    %31 = stablehlo.transpose %30, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %32 = stablehlo.dot_general %29, %8#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %33 = stablehlo.multiply %32, %12 : tensor<2x8xf32>
    %34 = stablehlo.multiply %33, %10 : tensor<2x8xf32>
    %35 = stablehlo.add %33, %34 : tensor<2x8xf32>
    %36 = stablehlo.dot_general %35, %8#3, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
    %37 = stablehlo.transpose %36, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %6, %37, %31, %25 : tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
  }
}
