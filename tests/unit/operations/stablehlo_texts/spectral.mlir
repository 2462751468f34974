module @jit_spectral attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x5xcomplex<f32>>, %arg1: tensor<2x12x8xf32>) -> (tensor<2x12x8xf32> {jax.result_info = "result"}) {
    %0 = call @fft(%arg1) : (tensor<2x12x8xf32>) -> tensor<2x12x5xcomplex<f32>>
    %1 = stablehlo.multiply %0, %0 : tensor<2x12x5xcomplex<f32>>
    %2 = stablehlo.transpose %1, dims = [0, 2, 1] : (tensor<2x12x5xcomplex<f32>>) -> tensor<2x5x12xcomplex<f32>>
    %3 = call @fft_0(%2) : (tensor<2x5x12xcomplex<f32>>) -> tensor<2x5x12xcomplex<f32>>
    %4 = stablehlo.transpose %3, dims = [0, 2, 1] : (tensor<2x5x12xcomplex<f32>>) -> tensor<2x12x5xcomplex<f32>>
    %5 = stablehlo.dot_general %4, %arg0, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x12x5xcomplex<f32>>, tensor<5x5xcomplex<f32>>) -> tensor<2x12x5xcomplex<f32>>
    %6 = call @fft_1(%5) : (tensor<2x12x5xcomplex<f32>>) -> tensor<2x12x8xf32>
    %7 = call @sort(%6) : (tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
    return %7 : tensor<2x12x8xf32>
  }
  func.func private @fft(%arg0: tensor<2x12x8xf32>) -> tensor<2x12x5xcomplex<f32>> {
    %0 = stablehlo.fft %arg0, type = RFFT, length = [12, 8] : (tensor<2x12x8xf32>) -> tensor<2x12x5xcomplex<f32>>
    return %0 : tensor<2x12x5xcomplex<f32>>
  }
  func.func private @fft_0(%arg0: tensor<2x5x12xcomplex<f32>>) -> tensor<2x5x12xcomplex<f32>> {
    %0 = stablehlo.fft %arg0, type = FFT, length = [12] : (tensor<2x5x12xcomplex<f32>>) -> tensor<2x5x12xcomplex<f32>>
    return %0 : tensor<2x5x12xcomplex<f32>>
  }
  func.func private @fft_1(%arg0: tensor<2x12x5xcomplex<f32>>) -> tensor<2x12x8xf32> {
    %0 = stablehlo.fft %arg0, type = IRFFT, length = [8] : (tensor<2x12x5xcomplex<f32>>) -> tensor<2x12x8xf32>
    return %0 : tensor<2x12x8xf32>
  }
  func.func private @sort(%arg0: tensor<2x12x8xf32>) -> tensor<2x12x8xf32> {
    %0 = "stablehlo.sort"(%arg0) <{dimension = 2 : i64, is_stable = true}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %1 = stablehlo.compare EQ, %arg1, %cst, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %2 = stablehlo.select %1, %cst_0, %arg1 : tensor<i1>, tensor<f32>
      %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_1 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      %4 = stablehlo.select %3, %cst_1, %2 : tensor<i1>, tensor<f32>
      %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %5 = stablehlo.compare EQ, %arg2, %cst_2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %6 = stablehlo.select %5, %cst_3, %arg2 : tensor<i1>, tensor<f32>
      %7 = stablehlo.compare NE, %arg2, %arg2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      %8 = stablehlo.select %7, %cst_4, %6 : tensor<i1>, tensor<f32>
      %9 = stablehlo.compare LT, %4, %8, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    }) : (tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
    return %0 : tensor<2x12x8xf32>
  }
}
